// Runs of the evaluator that a team has shared: files of a volume, as `sandcove eval share` writes them. Everybody who can write to the volume may have written
// anything into them, so nothing about their content is taken for granted.
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
}

/** The answer to a test. */
export interface Result {
  test: number;
  prompt: number;
  vars: [string, string][];
  output: string;
  passed: boolean;
  /** Whether there was no answer to judge. */
  isError: boolean;
  score: number;
  reason: string;
  parts: { kind: string; passed: boolean; score: number; reason: string }[];
  facts: string[];
}

export interface Run {
  head: Head;
  prompts: { label: string; provider: string }[];
  /** The results of each test, by prompt. */
  tests: Result[][];
}

type Unknown = Record<string, unknown>;

const object = (value: unknown): Unknown => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Unknown) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const number = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);
const text = (value: unknown): string => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value, null, 2));

/** The id of the volume, if the team has one. */
export async function volume(signal: AbortSignal): Promise<string | undefined> {
  const volumes = await get<Schemas["Volume"][]>("/volumes", {}, signal);
  return volumes.find((one) => one.name === VOLUME)?.volumeID;
}

const file = (id: string, name: string) => withQuery(`/volumecontent/${id}/file`, { path: `${RUNS}/${name}` });

/** What is listed of each run, the newest first. Files that are no runs are left out. */
export async function heads(id: string, signal: AbortSignal): Promise<Head[]> {
  const entries = await get<Schemas["Entry"][]>(`/volumecontent/${id}/dir`, { path: RUNS }, signal).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return [];
    throw error;
  });
  const names = entries.filter((entry) => entry.type === "file" && entry.name.endsWith(".head.json"));
  names.sort((a, b) => b.mtime.localeCompare(a.mtime));
  const found: Head[] = [];
  for (let first = 0; first < Math.min(names.length, LISTED); first += AT_ONCE) {
    const some = names.slice(first, Math.min(first + AT_ONCE, LISTED));
    const read = some.map(async ({ name, size }) => (size > 100_000 ? undefined : head(await get<unknown>(file(id, name), {}, signal).catch(gone), name.replace(/\.head\.json$/, ""))));
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
  const { createdAt, description, author, stats, providers, isRedteam } = object(value);
  return { evalId: id, createdAt: text(createdAt), description: text(description), author: text(author), stats: counts(stats), providers: list(providers).map(text), isRedteam: isRedteam === true };
}

function counts(stats: unknown): Head["stats"] {
  const { successes, failures, errors } = object(stats);
  return { successes: number(successes), failures: number(failures), errors: number(errors) };
}

/** A run with all of its results. */
export async function run(id: string, name: string, signal: AbortSignal): Promise<Run> {
  const document = object(await get<unknown>(file(id, `${name}.json`), {}, signal));
  const results = object(document.results);
  const prompts = list(results.prompts).map((prompt) => ({ label: text(object(prompt).label), provider: text(object(prompt).provider) }));
  const tests = new Map<number, Result[]>();
  for (const one of list(results.results).map(result)) {
    tests.set(one.test, [...(tests.get(one.test) ?? []), one]);
  }
  const config = object(document.config);
  return {
    head: {
      evalId: name,
      createdAt: text(results.timestamp),
      description: text(config.description),
      author: text(object(document.metadata).author),
      stats: counts(results.stats),
      providers: [...new Set(prompts.map((prompt) => prompt.provider))],
      isRedteam: Object.keys(object(config.redteam)).length > 0,
    },
    prompts,
    tests: [...tests.entries()].sort(([a], [b]) => a - b).map(([, cells]) => cells.sort((a, b) => a.prompt - b.prompt)),
  };
}

function result(value: unknown): Result {
  const row = object(value);
  const verdict = object(row.gradingResult);
  const [milliseconds, cost] = [number(row.latencyMs), number(row.cost)];
  return {
    test: number(row.testIdx),
    prompt: number(row.promptIdx),
    vars: Object.entries(object(row.vars)).map(([name, one]) => [name, text(one)]),
    output: text(object(row.response).output),
    passed: row.success === true,
    isError: row.failureReason === 2,
    score: number(row.score),
    reason: text(row.error) || text(verdict.reason),
    parts: list(verdict.componentResults).map((part) => {
      const { pass, score, reason, assertion } = object(part);
      return { kind: text(object(assertion).type), passed: pass === true, score: number(score), reason: text(reason) };
    }),
    facts: [milliseconds ? `${Math.round(milliseconds)} ms` : "", cost ? `$${cost.toPrecision(3)}` : ""].filter(Boolean),
  };
}

/** Deletes a run; first what lists it. */
export async function remove(id: string, name: string): Promise<void> {
  for (const path of [`${RUNS}/${name}.head.json`, `${RUNS}/${name}.json`]) {
    await change("DELETE", withQuery(`/volumecontent/${id}/path`, { path }));
  }
}
