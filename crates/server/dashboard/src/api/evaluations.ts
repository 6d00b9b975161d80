// Runs of the evaluator that a team has shared: files of a volume, as `sandcove eval share` writes them. Everybody who can write to the volume may have written
// anything into them, so nothing about their content is taken for granted.
import { list, number, object } from "../viewer/document";
import { type Schemas, ApiError, change, get, withQuery } from "./client";

const VOLUME = "evaluations";
/** Directory of the runs. */
export const RUNS = "/runs";
/** Runs that are listed, the newest. */
const LISTED = 200;
/** Files that are read at once. */
const AT_ONCE = 8;

export interface Head {
  evalId: string;
  createdAt: string;
  description: string;
  author: string;
  stats: { successes: number; failures: number; errors: number };
  providers: string[];
  isRedteam: boolean;
  numTests: number;
  /** Equal for runs of equal tests. */
  datasetId: string;
  /** The columns, with the counts of what passed, failed and ended with an error. */
  columns: { provider: string; label: string; metrics: Record<string, number> }[];
}

const text = (value: unknown): string => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value, null, 2));

/** The id of the volume, if the team has one. */
export async function volume(signal: AbortSignal): Promise<string | undefined> {
  const volumes = await get<Schemas["Volume"][]>("/volumes", {}, signal);
  return volumes.find((one) => one.name === VOLUME)?.volumeID;
}

const file = (id: string, name: string) => withQuery(`/volumecontent/${id}/file`, { path: `${RUNS}/${name}` });

/** The entries of a directory of the volume; none if it does not exist. */
export async function entries(id: string, signal: AbortSignal, path = RUNS): Promise<Schemas["Entry"][]> {
  return get<Schemas["Entry"][]>(`/volumecontent/${id}/dir`, { path }, signal).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  });
}

/** What is listed of each run, the newest first. Files that are no runs are left out. */
export async function heads(id: string, signal: AbortSignal): Promise<Head[]> {
  const all = await entries(id, signal);
  const names = all.filter((entry) => entry.type === "file" && entry.name.endsWith(".head.json"));
  names.sort((a, b) => b.mtime.localeCompare(a.mtime));
  const found: Head[] = [];
  for (let first = 0; first < Math.min(names.length, LISTED); first += AT_ONCE) {
    const some = names.slice(first, Math.min(first + AT_ONCE, LISTED));
    const read = some.map(async ({ name, size }) => {
      const run = name.replace(/\.head\.json$/, "");
      return size > 100_000 ? undefined : head(await get<unknown>(file(id, name), {}, signal).catch(gone), run);
    });
    found.push(...(await Promise.all(read)).filter((one) => one !== undefined));
  }
  return found.sort((a, b) => b.createdAt.localeCompare(a.createdAt));
}

/** Nothing for a file that was deleted meanwhile or is no JSON. */
function gone(error: unknown): undefined {
  if (error instanceof SyntaxError || (error instanceof ApiError && error.status === 404)) return undefined;
  throw error;
}

/** What is listed of a run, whose files have the name `id`. */
function head(value: unknown, id: string): Head | undefined {
  if (value === undefined) return undefined;
  const { createdAt, description, author, stats, providers, isRedteam, numTests, datasetId, columns } = object(value);
  return {
    evalId: id,
    createdAt: text(createdAt),
    description: text(description),
    author: text(author),
    stats: counts(stats),
    providers: list(providers).map(text),
    isRedteam: isRedteam === true,
    numTests: number(numTests),
    // A head of an earlier version says nothing of its tests: no other run has the same.
    datasetId: text(datasetId) || id,
    columns: list(columns).map(column),
  };
}

function column(value: unknown): Head["columns"][number] {
  const { provider, label, metrics } = object(value);
  const sums = Object.entries(object(metrics)).map(([name, count]) => [name, number(count)]);
  return { provider: text(provider), label: text(label), metrics: Object.fromEntries(sums) };
}

function counts(stats: unknown): Head["stats"] {
  const { successes, failures, errors } = object(stats);
  return { successes: number(successes), failures: number(failures), errors: number(errors) };
}

/** The content of a file of runs. */
export const content = (id: string, name: string, signal: AbortSignal): Promise<unknown> => get<unknown>(file(id, name), {}, signal);

/** Other than before when a file of a run has changed. */
export const changes = async (id: string, signal: AbortSignal): Promise<string> => JSON.stringify((await entries(id, signal)).map(({ name, mtime }) => [name, mtime]));

/** Deletes a run: first what lists it, and last its ratings, which nobody adds to when it is gone. */
export async function remove(id: string, run: string): Promise<void> {
  // What there is now: somebody may have rated it since it was listed, and a browser reports everything that it asks for in vain.
  const names = new Set((await entries(id, new AbortController().signal)).map((entry) => entry.name));
  for (const name of ["head.json", "report.json", "json", "ratings"].map((kind) => `${run}.${kind}`)) {
    if (names.has(name)) await change("DELETE", withQuery(`/volumecontent/${id}/path`, { path: `${RUNS}/${name}` })).catch(gone);
  }
}
