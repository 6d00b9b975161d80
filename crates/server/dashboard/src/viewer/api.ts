// Answers the viewer's questions in the browser, from the files of the runs that the team has shared. The viewer's own module of this
// name (`crates/viewer/src/page/api.js`) asks `sandcove view`.
import { ApiError, withQuery } from "../api/client";
import { type Head, RUNS, changes, content, heads, volume } from "../api/evaluations";
import { type Json, type Run, read, string } from "./document";
import { parse } from "./filter";
import { find, metadataKeys, metadataValues, page, scores } from "./library";
import { type Ratings, rate, ratings, save, store } from "./ratings";

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
/** Runs that somebody has rated here or elsewhere. */
const rated = new Set<string>();
let place: string | undefined;

async function shared(): Promise<string> {
  place ??= await volume(signal);
  if (!place) throw new Error("no runs are shared");
  return place;
}

async function load(id: string): Promise<Kept> {
  const volume = await shared();
  const known = await ratings(volume, id, signal);
  const document = await content(volume, `${id}.json`, signal);
  rate(document, known);
  if (known.size > 0) rated.add(id);
  return { run: read(id, document), document, ratings: known };
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
  async rate(id: string, key: string, verdict: Json): Promise<Json> {
    const of = await keep(id);
    const row = string(find(of.run, key)["id"]);
    if (!row) throw new Error("This answer has no id, and cannot be rated.");
    try {
      of.ratings.set(key, await store(await shared(), id, key, row, verdict, of.ratings.get(key), signal));
    } catch (error) {
      // The page reads the run again, and shows what others say.
      kept.delete(id);
      throw error;
    }
    rate(of.document, new Map([...of.ratings].filter(([place]) => place === key)));
    of.run = read(id, of.document);
    rated.add(id);
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
    if (!rated.has(id)) return;
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
