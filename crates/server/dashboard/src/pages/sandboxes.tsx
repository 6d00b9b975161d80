import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";

import { type Schemas, all, change, get } from "../api/client";
import { brief, size, time } from "../ui/format";
import { useLoad, useNow, useTitle } from "../ui/hooks";
import { Bar, Confirmed, Empty, Failure, Loading, Metadata, Page, State } from "../ui/parts";
import { type Column, Table } from "../ui/table";

type Sandbox = Schemas["ListedSandbox"];
type Samples = Record<string, Schemas["Metric"]>;

const HOURS = { "": Infinity, "1": 1, "6": 6, "12": 12 };

export function Sandboxes() {
  useTitle("Sandboxes");
  const [interval, setInterval] = useState(5000);
  const [search, setSearch] = useState("");
  const [state, setState] = useState("");
  const [template, setTemplate] = useState("");
  const [hours, setHours] = useState<keyof typeof HOURS>("");
  const { data, error, reload } = useLoad((signal) => all<Sandbox>("/v2/sandboxes", {}, signal), [], interval || undefined);
  const { samples, setVisible } = useSamples(interval);
  const now = useNow();
  const templates = useMemo(() => [...new Set((data ?? []).map(nameOf))].sort(), [data]);
  const minute = Math.floor(now / 60_000);
  const rows = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return (data ?? []).filter((one) => {
      const text = [one.sandboxID, nameOf(one), one.templateID, ...Object.entries(one.metadata ?? {}).map((pair) => pair.join("="))].join(" ").toLowerCase();
      return (
        words.every((word) => text.includes(word)) &&
        (!state || one.state === state) &&
        (!template || nameOf(one) === template) &&
        minute * 60_000 - new Date(one.startedAt).getTime() <= HOURS[hours] * 3_600_000
      );
    });
  }, [data, search, state, template, hours, minute]);
  const columns: Column<Sandbox>[] = [
    { name: "ID", cell: (row) => <Link href={`/sandboxes/${row.sandboxID}`} class="mono">{row.sandboxID}</Link>, by: (row) => row.sandboxID },
    { name: "State", cell: (row) => <State value={row.state} />, by: (row) => row.state },
    { name: "Template", cell: (row) => <span title={nameOf(row)}>{nameOf(row)}</span>, by: nameOf, short: true },
    { name: "Age", cell: (row) => <span title={time(row.startedAt)}>{brief(now - new Date(row.startedAt).getTime())}</span>, by: (row) => -new Date(row.startedAt).getTime() },
    {
      name: "Time left",
      cell: (row) => (row.state === "paused" ? <span class="quiet">–</span> : <span title={time(row.endAt)}>{brief(new Date(row.endAt).getTime() - now)}</span>),
      by: (row) => (row.state === "paused" ? Infinity : new Date(row.endAt).getTime()),
    },
    ...usage(samples),
    { name: "Metadata", cell: (row) => <Metadata values={row.metadata} />, wide: true },
    {
      name: "Actions",
      cell: (row) => (
        <Confirmed
          label="Kill"
          name={`Kill ${row.sandboxID}`}
          danger
          question={`Kill ${row.sandboxID}?`}
          action={() => change("DELETE", `/sandboxes/${row.sandboxID}`)}
          then={reload}
        />
      ),
    },
  ];
  return (
    <Page title="Sandboxes" actions={<Link href="/new" class="button primary">New sandbox</Link>}>
      <div class="filters" role="search">
        <input type="search" aria-label="Search by id, template or metadata" placeholder="Search by id, template or metadata" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <select aria-label="State" value={state} onChange={(event) => setState(event.currentTarget.value)}>
          <option value="">All states</option>
          <option value="running">Running</option>
          <option value="paused">Paused</option>
        </select>
        <select aria-label="Template" value={template} onChange={(event) => setTemplate(event.currentTarget.value)}>
          <option value="">All templates</option>
          {templates.map((name) => <option key={name}>{name}</option>)}
        </select>
        <select aria-label="Started" value={hours} onChange={(event) => setHours(event.currentTarget.value as keyof typeof HOURS)}>
          <option value="">Started at any time</option>
          <option value="1">Within an hour</option>
          <option value="6">Within 6 hours</option>
          <option value="12">Within 12 hours</option>
        </select>
        <select aria-label="Refresh" value={interval} onChange={(event) => setInterval(Number(event.currentTarget.value))}>
          <option value={0}>No refresh</option>
          {[5, 15, 30, 60].map((seconds) => <option key={seconds} value={seconds * 1000}>Every {seconds} s</option>)}
        </select>
        <span class="quiet" role="status">{data ? `${rows.length} of ${data.length}` : ""}</span>
      </div>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No sandboxes. <Link href="/new">Start one</Link>, or with a client: <code>Sandbox.create()</code>.</Empty>}
      {data && data.length > 0 && <Table label="Sandboxes" rows={rows} columns={columns} id={(row) => row.sandboxID} onVisible={setVisible} />}
    </Page>
  );
}

function nameOf(sandbox: Sandbox): string {
  return sandbox.alias || sandbox.templateID;
}

function usage(samples: Samples): Column<Sandbox>[] {
  const bar = (name: string, share: (one: Schemas["Metric"]) => number, text: (one: Schemas["Metric"]) => string): Column<Sandbox> => ({
    name,
    cell: (row) => {
      const sample = row.state === "running" ? samples[row.sandboxID] : undefined;
      return <Bar share={sample && share(sample)} label={`${name} of ${row.sandboxID}`} text={sample ? text(sample) : ""} />;
    },
  });
  return [
    bar("CPU", (one) => one.cpuUsedPct / 100, (one) => `${Math.round(one.cpuUsedPct)} %`),
    bar("Memory", (one) => one.memUsed / (one.memTotal || 1), (one) => size(one.memUsed)),
    bar("Disk", (one) => one.diskUsed / (one.diskTotal || 1), (one) => size(one.diskUsed)),
  ];
}

/** The last samples of the sandboxes in sight. */
function useSamples(interval: number): { samples: Samples; setVisible: (rows: Sandbox[]) => void } {
  const [ids, setIds] = useState<string[]>([]);
  const kept = useRef<Samples>({});
  const { data } = useLoad(
    async (signal) => {
      if (ids.length === 0) return {};
      const { sandboxes } = await get<{ sandboxes: Samples }>("/sandboxes/metrics", { sandbox_ids: ids.join(",") }, signal);
      return sandboxes;
    },
    [ids],
    interval || undefined,
  );
  if (data) kept.current = { ...kept.current, ...data };
  const setVisible = useCallback((rows: Sandbox[]) => setIds(rows.filter((row) => row.state === "running").map((row) => row.sandboxID).slice(0, 100)), []);
  return { samples: kept.current, setVisible };
}
