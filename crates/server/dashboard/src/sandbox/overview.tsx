import { useState } from "preact/hooks";

import { type Schemas, get } from "../api/client";
import type { Detail } from "../pages/sandbox";
import { Chart, type Mark } from "../ui/chart";
import { size, time } from "../ui/format";
import { useLoad } from "../ui/hooks";
import { Copy, Failure, Metadata } from "../ui/parts";

const RANGES: [string, number][] = [
  ["Last minute", 1],
  ["Last 5 minutes", 5],
  ["Last 15 minutes", 15],
  ["Last 30 minutes", 30],
  ["Full run", 0],
];

interface Observed {
  samples: Schemas["Metric"][];
  marks: Mark[];
  from: number;
  to: number;
}

export function Overview({ sandbox }: { sandbox: Detail }) {
  const [minutes, setMinutes] = useState(5);
  const id = sandbox.sandboxID;
  const { data, error } = useLoad<Observed>(
    async (signal) => {
      const to = Date.now();
      const from = minutes ? to - minutes * 60_000 : new Date(sandbox.startedAt).getTime();
      const [samples, events] = await Promise.all([
        get<Schemas["Metric"][]>(`/sandboxes/${id}/metrics`, { start: Math.floor(from / 1000), end: Math.ceil(to / 1000) }, signal),
        get<Schemas["Event"][]>(`/events/sandboxes/${id}`, { limit: 100 }, signal),
      ]);
      const marks = events.map((event) => ({ at: new Date(event.timestamp).getTime(), label: event.type.replace("sandbox.lifecycle.", "") }));
      return { samples, marks, from, to };
    },
    [id, minutes],
    5000,
  );
  const line = (value: (sample: Schemas["Metric"]) => number) => (data?.samples ?? []).map((sample) => ({ at: sample.timestampUnix * 1000, value: value(sample) }));
  const last = data?.samples[data.samples.length - 1];
  const common = { marks: data?.marks ?? [], from: data?.from ?? 0, to: data?.to ?? 1 };
  return (
    <>
      <div class="filters">
        <label>Range{" "}
          <select value={minutes} onChange={(event) => setMinutes(Number(event.currentTarget.value))}>
            {RANGES.map(([name, value]) => <option key={value} value={value}>{name}</option>)}
          </select>
        </label>
      </div>
      <Failure text={error} />
      <div class="charts">
        <Chart title="CPU" points={line((one) => one.cpuUsedPct)} max={100} unit={(value) => `${Math.round(value)} %`} {...common} />
        <Chart title="Memory" points={line((one) => one.memUsed)} max={last?.memTotal ?? 0} unit={size} {...common} />
        <Chart title="Disk" points={line((one) => one.diskUsed)} max={last?.diskTotal ?? 0} unit={size} {...common} />
      </div>
      <dl class="properties">
        <dt>Template</dt><dd>{sandbox.alias || "–"} <code>{sandbox.templateID}</code> <Copy text={sandbox.templateID} label="the template" /></dd>
        <dt>Started</dt><dd>{time(sandbox.startedAt)}</dd>
        <dt>{sandbox.lifecycle.onTimeout === "pause" ? "Pauses" : "Ends"}</dt><dd>{time(sandbox.endAt)}</dd>
        <dt>Resumes by traffic</dt><dd>{sandbox.lifecycle.autoResume ? "yes" : "no"}</dd>
        {sandbox.pauseMode && <><dt>Paused with</dt><dd>{sandbox.pauseMode === "full" ? "memory and files" : "files"}</dd></>}
        <dt>Agent</dt><dd>{sandbox.envdVersion}</dd>
        <dt>Metadata</dt><dd><Metadata values={sandbox.metadata} /></dd>
        <dt>Volumes</dt><dd>{sandbox.volumeMounts?.map((mount) => `${mount.name} at ${mount.path}`).join(", ") || "–"}</dd>
      </dl>
    </>
  );
}
