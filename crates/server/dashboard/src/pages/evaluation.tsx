import { useMemo, useState } from "preact/hooks";

import { type Result, type Run, run, volume } from "../api/evaluations";
import { time } from "../ui/format";
import { useLoad, useTitle } from "../ui/hooks";
import { Copy, Dialog, Empty, Failure, Loading, Page, Plain, State } from "../ui/parts";

const ROWS = 50;
/** Characters of a text in the table. */
const BRIEF = 600;

type Kept = "all" | "failures" | "errors" | "passes";

/** A run of the evaluator: each test with its variables and the answer of each prompt and provider. */
export function Evaluation({ id }: { id: string }) {
  const { data, error } = useLoad(
    async (signal) => {
      const place = await volume(signal);
      if (!place) throw new Error("no runs are shared");
      return run(place, id, signal);
    },
    [id],
  );
  const name = data?.head.description || id;
  useTitle(name);
  return (
    <Page title={name}>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data && <Results run={data} />}
    </Page>
  );
}

function state(result: Result): string {
  return result.passed ? "passed" : result.isError ? "error" : "failed";
}

function Results({ run }: { run: Run }) {
  const [kept, setKept] = useState<Kept>("all");
  const [wanted, setWanted] = useState("");
  const [page, setPage] = useState(0);
  const [open, setOpen] = useState<Result>();
  const { head, prompts, tests } = run;
  const names = useMemo(() => [...new Set(tests.flatMap((cells) => cells.flatMap((cell) => cell.vars.map(([name]) => name))))], [tests]);
  const rows = useMemo(() => {
    const fits: Record<Kept, (cell: Result) => boolean> = { all: () => true, failures: (cell) => !cell.passed && !cell.isError, errors: (cell) => cell.isError, passes: (cell) => cell.passed };
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (cell: Result) => {
      const all = [cell.output, cell.reason, ...cell.vars.map(([, value]) => value)].join("\n").toLowerCase();
      return words.every((word) => all.includes(word));
    };
    return tests.filter((cells) => cells.some((cell) => fits[kept](cell) && has(cell)));
  }, [tests, kept, wanted]);
  const pages = Math.max(1, Math.ceil(rows.length / ROWS));
  const at = Math.min(page, pages - 1);
  const { successes, failures, errors } = head.stats;
  const all = successes + failures + errors;
  return (
    <>
      <p class="facts">
        <span><strong>{all ? `${((successes * 100) / all).toFixed(1)} %` : "–"}</strong> passed</span>
        <span><strong>{successes}</strong> passed</span>
        <span><strong>{failures}</strong> failed</span>
        <span><strong>{errors}</strong> errors</span>
        <span>{head.createdAt && time(head.createdAt)}</span>
        {head.author && <span>{head.author}</span>}
        <span class="mono">{head.evalId} <Copy text={head.evalId} /></span>
      </p>
      <div class="filters" role="search">
        <input type="search" aria-label="Find in variables and answers" placeholder="Find in variables and answers" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
        <select aria-label="Results" value={kept} onChange={(event) => setKept(event.currentTarget.value as Kept)}>
          <option value="all">All results</option>
          <option value="failures">Failures</option>
          <option value="errors">Errors</option>
          <option value="passes">Passes</option>
        </select>
        <span class="quiet" role="status">{rows.length} of {tests.length} tests</span>
      </div>
      {rows.length === 0 && <Empty>No tests match.</Empty>}
      {rows.length > 0 && (
        <Plain label="Results">
          <thead>
            <tr>
              {names.map((name) => <th key={name} scope="col">{name}</th>)}
              {prompts.map(({ label, provider }, index) => <th key={index} scope="col" title={label}>{provider || `prompt ${index + 1}`}<div class="quiet prompt">{label}</div></th>)}
            </tr>
          </thead>
          <tbody>
            {rows.slice(at * ROWS, (at + 1) * ROWS).map((cells) => {
              const vars = new Map(cells[0]?.vars);
              return (
                <tr key={cells[0]?.test}>
                  {names.map((name) => <td key={name}><div class="brief">{(vars.get(name) ?? "").slice(0, BRIEF)}</div></td>)}
                  {prompts.map((_, index) => {
                    const cell = cells.find((one) => one.prompt === index);
                    return <td key={index}>{cell && <Cell result={cell} onOpen={() => setOpen(cell)} />}</td>;
                  })}
                </tr>
              );
            })}
          </tbody>
        </Plain>
      )}
      {pages > 1 && (
        <nav class="buttons start" aria-label="Pages of results">
          <button type="button" disabled={at === 0} onClick={() => setPage(at - 1)}>Previous</button>
          <span class="quiet">page {at + 1} of {pages}</span>
          <button type="button" disabled={at === pages - 1} onClick={() => setPage(at + 1)}>Next</button>
        </nav>
      )}
      {open && <Detail result={open} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function Cell({ result, onOpen }: { result: Result; onOpen: () => void }) {
  return (
    <>
      <span class="row"><State value={state(result)} /> <button type="button" class="link" aria-label={`Open test ${result.test + 1}`} onClick={onOpen}>score {result.score.toFixed(2)}</button></span>
      {!result.passed && result.reason && <div class="brief stderr">{result.reason.slice(0, BRIEF)}</div>}
      <pre class="brief">{result.output.slice(0, BRIEF)}</pre>
    </>
  );
}

function Detail({ result, onClose }: { result: Result; onClose: () => void }) {
  return (
    <Dialog title={`Test ${result.test + 1}`} onClose={onClose}>
      <p class="row"><State value={state(result)} /> score {result.score.toFixed(2)} {result.facts.map((fact) => <span key={fact} class="quiet">{fact}</span>)}</p>
      {result.reason && <p class={result.passed ? "data" : "data stderr"}>{result.reason}</p>}
      {result.vars.map(([name, value]) => <section key={name}><h3>{name}</h3><pre class="command">{value}</pre></section>)}
      <h3>Answer</h3>
      <pre class="command">{result.output}</pre>
      {result.parts.length > 0 && (
        <>
          <h3>Assertions</h3>
          <ul class="ports">
            {result.parts.map(({ kind, passed, score, reason }, index) => (
              <li key={index}><State value={passed ? "passed" : "failed"} /> <span class="mono">{kind}</span> <span class="quiet">{score.toFixed(2)}</span> {reason}</li>
            ))}
          </ul>
        </>
      )}
      <div class="buttons"><button type="button" class="primary" onClick={onClose}>Close</button></div>
    </Dialog>
  );
}
