import { useEffect, useRef, useState } from "preact/hooks";

import { type Schemas, get } from "../api/client";
import { clock, time } from "../ui/format";
import { useLoad } from "../ui/hooks";
import { Empty, Failure, Loading } from "../ui/parts";

type Line = Schemas["LogEntry"];

export function Logs({ id, ended = false }: { id: string; ended?: boolean }) {
  const [level, setLevel] = useState("");
  const [search, setSearch] = useState("");
  const [follows, setFollows] = useState(!ended);
  const { data, error } = useLoad(
    async (signal) => {
      const query = { limit: 1000, direction: "backward", level: level || undefined, search: search || undefined };
      const { logs } = await get<{ logs: Line[] }>(`/v2/sandboxes/${encodeURIComponent(id)}/logs`, query, signal);
      return logs.reverse();
    },
    [id, level, search],
    follows ? 2000 : undefined,
  );
  return (
    <>
      <div class="filters" role="search">
        <input type="search" aria-label="Search the logs" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <select aria-label="Level" value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
          <option value="">All levels</option>
          {["debug", "info", "warn", "error"].map((one) => <option key={one} value={one}>{one} and above</option>)}
        </select>
        {!ended && <label class="check"><input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} /> Follow</label>}
      </div>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No lines.</Empty>}
      {data && data.length > 0 && <Lines lines={data.map((line) => ({ ...line, note: Object.entries(line.fields).map(([name, value]) => `${name}=${value}`).join(" ") }))} follows={follows} />}
    </>
  );
}

/** Lines of a log, the last one in sight while it is followed. */
export function Lines({ lines, follows }: { lines: { timestamp: string; level: string; message: string; note?: string }[]; follows: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length, follows]);
  return (
    <div class="log mono" ref={box} tabIndex={0} role="log" aria-label="Log">
      {lines.map((line, index) => (
        <div key={index} class={`line ${/^[a-z]+$/.test(line.level) ? line.level : ""}`}>
          <time title={time(line.timestamp)}>{clock(line.timestamp)}</time> <b>{line.level}</b> <span>{line.message}</span>
          {line.note && <span class="quiet"> {line.note}</span>}
        </div>
      ))}
    </div>
  );
}
