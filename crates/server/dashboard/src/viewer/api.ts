// Answers the viewer's questions in the browser, from the files of the runs that the team has shared. The viewer's own module of this
// name (`crates/viewer/src/page/api.js`) asks `sandcove view`.
import { ApiError, withQuery } from "../api/client";
import { type Head, RUNS, changes, content, heads, volume } from "../api/evaluations";
import { type Json, type Run, read } from "./document";
import { parse } from "./filter";
import { find, metadataKeys, metadataValues, page, scores } from "./library";
import { type Ratings, rated, ratings, save, store } from "./ratings";

/** Documents that are kept: the one that is shown, and some beside it. */
const KEPT = 4;
/** Milliseconds between two looks at the files. */
const INTERVAL = 10_000;

const signal = new AbortController().signal;
/** A run, with what it was read from. */
interface Kept {
  run: Run;
  document: unknown;
  ratings: Ratings;
}
const kept = new Map<string, Promise<Kept>>();
/** The ratings of runs as they were read last: only those that have changed are read again. */
const known = new Map<string, Ratings>();
let place: string | undefined;

async function shared(): Promise<string> {
  place ??= await volume(signal);
  if (!place) throw new Error("no runs are shared");
  return place;
}

async function load(id: string): Promise<Kept> {
  const volume = await shared();
  // One that cannot be read now is left out, and read with the next change. It is not overwritten meanwhile.
  const said = await ratings(volume, id, known.get(id) ?? new Map(), () => undefined, signal);
  known.set(id, said);
  const document = await content(volume, `${id}.json`, signal);
  return { run: read(id, rated(document, said)), document, ratings: said };
}

function keep(id: string): Promise<Kept> {
  const found = kept.get(id) ?? load(id);
  // The one that was used last is the last.
  kept.delete(id);
  kept.set(id, found);
  found.catch(() => kept.delete(id));
  for (const other of [...kept.keys()].slice(0, -KEPT)) kept.delete(other);
  return found;
}

const run = async (id: string): Promise<Run> => (await keep(id)).run;

const listed = async (): Promise<Head[]> => heads(await shared(), signal);
const milliseconds = (time: string) => Date.parse(time) || 0;

export const api = {
  can: { change: false, rate: true, exports: ["json"] },
  runs: async () =>
    (await listed()).map((head) => {
      const { successes, failures, errors } = head.stats;
      const all = successes + failures + errors;
      return {
        ...head,
        createdAt: milliseconds(head.createdAt),
        label: head.description ? `${head.description} (${head.evalId})` : head.evalId,
        passRate: all ? (successes * 100) / all : 0,
        providers: head.providers.map((id) => ({ id })),
      };
    }),
  async page(id: string, text: string) {
    const query = parse(text);
    const [own, ...beside] = await Promise.all([run(id), ...query.beside.map(run)]);
    return page(own, beside, query);
  },
  row: async (id: string, key: string) => find(await run(id), key),
  /** Stores a verdict of the row `seen`, which `row` gave. */
  async rate(id: string, key: string, verdict: Json, seen: Json): Promise<Json> {
    const before = keep(id);
    const of = await before;
    try {
      of.ratings.set(key, await store(await shared(), id, key, verdict, seen, signal));
    } catch (error) {
      // What others say is read again.
      kept.delete(id);
      throw error;
    }
    of.run = read(id, rated(of.document, of.ratings));
    // What was read meanwhile may not have it yet.
    if (kept.get(id) !== before) kept.delete(id);
    return find(of.run, key);
  },
  scores: async (id: string) => scores(await run(id)),
  history: async () =>
    (await listed()).flatMap((head) =>
      head.columns.map((column) => ({ ...column, evalId: head.evalId, createdAt: milliseconds(head.createdAt), description: head.description, datasetId: head.datasetId })),
    ),
  metadataKeys: async (id: string) => metadataKeys(await run(id)),
  metadataValues: async (id: string, key: string) => metadataValues(await run(id), key),
  report: async (id: string) => {
    try {
      return await content(await shared(), `${id}.report.json`, signal);
    } catch (error) {
      // Not every shared run has one: older releases wrote none.
      throw error instanceof ApiError && error.status === 404 ? new Error(`${id} is shared without a report; share it again`) : error;
    }
  },
  /** Has the browser save a run with its ratings in place of the file of the volume, which has none. */
  saves(id: string, event: Event) {
    event.preventDefault();
    void shared().then((volume) => save(volume, id));
  },
  file: (id: string) => withQuery(`/dashboard/api/volumecontent/${place ?? ""}/file`, { path: `${RUNS}/${id}.json` }),
};

/** Calls `changed` after every change of the files of runs. */
export function listen(changed: () => void): void {
  let before: string | undefined;
  const look = async () => {
    if (document.visibilityState === "hidden") return;
    const now = await changes(await shared(), signal);
    if (before !== undefined && now !== before) {
      kept.clear();
      changed();
    }
    before = now;
  };
  const again = (): void => {
    look().catch(() => undefined).finally(() => setTimeout(again, INTERVAL));
  };
  again();
}
