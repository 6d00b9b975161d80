import { useState } from "preact/hooks";

import { type Schemas, get } from "../api/client";
import { Chart, type Point } from "../ui/chart";
import { useLoad, useTitle } from "../ui/hooks";
import { Failure, Loading, Page } from "../ui/parts";

type Sample = Schemas["TeamMetric"];

const RANGES: [string, number][] = [
  ["Last hour", 1],
  ["Last 6 hours", 6],
  ["Last 24 hours", 24],
  ["Last 7 days", 7 * 24],
  ["Last 30 days", 30 * 24],
];

/** The sandboxes of a team over time. */
export function Monitoring({ team }: { team: string }) {
  useTitle("Monitoring");
  const [hours, setHours] = useState(1);
  const { data, error } = useLoad(
    async (signal) => {
      const to = Math.ceil(Date.now() / 1000);
      const from = to - hours * 3600;
      const samples = await get<Sample[]>(`/teams/${team}/metrics`, { start: from, end: to }, signal);
      return { samples, from: from * 1000, to: to * 1000 };
    },
    [team, hours],
    10_000,
  );
  const line = (value: (sample: Sample) => number): Point[] => (data?.samples ?? []).map((sample) => ({ at: sample.timestampUnix * 1000, value: value(sample) }));
  const common = { marks: [], from: data?.from ?? 0, to: data?.to ?? 1, gap: gap(data?.samples ?? []) };
  return (
    <Page title="Monitoring">
      <div class="filters">
        <label>Range{" "}
          <select value={hours} onChange={(event) => setHours(Number(event.currentTarget.value))}>
            {RANGES.map(([name, value]) => <option key={value} value={value}>{name}</option>)}
          </select>
        </label>
      </div>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data && (
        <div class="charts">
          <Chart title="Concurrent sandboxes" points={line((one) => one.concurrentSandboxes)} max={4} unit={(value) => String(Math.round(value))} {...common} />
          <Chart title="Starts per minute" points={line((one) => one.sandboxStartRate * 60)} max={4} unit={(value) => String(Math.round(value * 10) / 10)} {...common} />
        </div>
      )}
    </Page>
  );
}

/** The time between two samples from which on the server did not run meanwhile: three of the steps in which it takes them. */
function gap(samples: Sample[]): number {
  const steps = samples.slice(1).map((sample, index) => sample.timestampUnix - (samples[index]?.timestampUnix ?? 0));
  return 3000 * Math.min(3600 * 24, ...steps);
}
