import { Link } from "wouter-preact";

import { RUNS, type Head, heads, remove, volume } from "../api/evaluations";
import { withQuery } from "../api/client";
import { time } from "../ui/format";
import { useLoad, useTitle } from "../ui/hooks";
import { save } from "../viewer/ratings";
import { Bar, Confirmed, Empty, Failure, Loading, Page, Plain } from "../ui/parts";

/** The runs of the evaluator that the team has shared. */
export function Evaluations() {
  useTitle("Evaluations");
  const { data, error, reload } = useLoad(
    async (signal) => {
      const id = await volume(signal);
      return { id, runs: id ? await heads(id, signal) : [] };
    },
    [],
    10_000,
  );
  return (
    <Page title="Evaluations">
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data?.runs.length === 0 && (
        <Empty>
          No runs are shared. <code>sandcove eval --share</code> shares a new run, <code>sandcove eval share</code> the last one.
        </Empty>
      )}
      {data?.id && data.runs.length > 0 && (
        <Plain label="Evaluations">
          <thead>
            <tr>
              {["Run", "When", "Passed", "Failed", "Errors", "Providers", "Actions"].map((name) => <th key={name} scope="col">{name}</th>)}
            </tr>
          </thead>
          <tbody>{data.runs.map((run) => <Row key={run.evalId} run={run} volume={data.id ?? ""} reload={reload} />)}</tbody>
        </Plain>
      )}
      <p class="quiet">
        Runs are files of the volume <code>evaluations</code>. The counts are those with which a run was shared; its page and its file have the ratings of the team too.
      </p>
    </Page>
  );
}

function Row({ run, volume, reload }: { run: Head; volume: string; reload: () => void }) {
  const { successes, failures, errors } = run.stats;
  const all = successes + failures + errors;
  const file = withQuery(`/dashboard/api/volumecontent/${volume}/file`, { path: `${RUNS}/${run.evalId}.json` });
  const withRatings = (event: Event) => {
    event.preventDefault();
    void save(volume, run.evalId);
  };
  return (
    <tr>
      <td>
        <Link href={`/evaluations/${encodeURIComponent(run.evalId)}`}>{run.description || run.evalId}</Link>
        {run.isRedteam && <> <span class="tag">red team</span></>}
      </td>
      <td class="time">{run.createdAt && time(run.createdAt)}{run.author && <div class="quiet">{run.author}</div>}</td>
      <td><Bar share={all ? successes / all : undefined} label={`Passed of ${run.description || run.evalId}`} text={`${successes} of ${all}`} good /></td>
      <td>{failures}</td>
      <td>{errors}</td>
      <td>{run.providers.join(", ")}</td>
      <td>
        <span class="row">
          <a class="button" href={file} download={`${run.evalId}.json`} aria-label={`Download ${run.evalId}`} onClick={withRatings}>Download</a>
          <Confirmed label="Delete" name={`Delete ${run.evalId}`} danger question={`Delete ${run.description || run.evalId} for the whole team?`} action={() => remove(volume, run.evalId)} then={reload} />
        </span>
      </td>
    </tr>
  );
}
