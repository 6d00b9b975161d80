// What people think of the answers of a shared run. The rating of an answer is a file of its own, so that nobody overwrites what others say about
// other answers. It is laid over the run when that is read, as `sandcove view` changes a stored run (`crates/eval/src/view/rate.rs`).
import { type Schemas, ApiError, change, checked, get, withQuery } from "../api/client";
import { RUNS, entries } from "../api/evaluations";
import { type Json, list, number, object, plus, string } from "./document";

/** Files that are read at once. */
const AT_ONCE = 8;
/** Bytes of a rating that are read: it has a comment, and what the checks said. */
const MAX_SIZE = 1_000_000;
const FILE = /^\d+\.\d+\.json$/;

/** The rating of an answer. */
export interface Rating {
  /** Time at which the file was written. */
  mtime: string;
  /** Id of the row that was rated. A run that was shared again may have another answer in its place. */
  row: string | null;
  verdict: Json;
}

/** Ratings by the place of the answer, as in `12.0`: the test, then the column. */
export type Ratings = Map<string, Rating>;

const directory = (run: string) => `${RUNS}/${run}.ratings`;
const file = (volume: string, run: string, place: string) => withQuery(`/volumecontent/${volume}/file`, { path: `${directory(run)}/${place}.json` });

/** The files of ratings; nothing if there is no directory for them. */
async function listed(volume: string, run: string, signal: AbortSignal): Promise<Schemas["Entry"][] | undefined> {
  // Most runs have none, and a browser reports everything that it asks for in vain.
  if (!(await entries(volume, signal)).some((entry) => entry.name === `${run}.ratings` && entry.type === "directory")) return undefined;
  return (await entries(volume, signal, directory(run))).filter((entry) => entry.type === "file" && FILE.test(entry.name) && entry.size <= MAX_SIZE);
}

/** Reads the ratings of a run. */
export async function ratings(volume: string, run: string, signal: AbortSignal): Promise<Ratings> {
  const files = (await listed(volume, run, signal)) ?? [];
  const found: Ratings = new Map();
  for (let first = 0; first < files.length; first += AT_ONCE) {
    const read = files.slice(first, first + AT_ONCE).map(async ({ name, mtime }) => {
      const place = name.slice(0, -".json".length);
      const { row, gradingResult } = object(await get<unknown>(file(volume, run, place), {}, signal).catch(damaged));
      found.set(place, { mtime, row: string(row), verdict: object(gradingResult) });
    });
    await Promise.all(read);
  }
  return found;
}

/** Nothing for a file that was deleted meanwhile or is no JSON: no row has its id. */
function damaged(error: unknown): undefined {
  if (error instanceof SyntaxError || (error instanceof ApiError && error.status === 404)) return undefined;
  throw error;
}

/** Stores the rating of an answer, unless somebody has rated it since `known` was read. */
export async function store(volume: string, run: string, place: string, row: string, verdict: Json, known: Rating | undefined, signal: AbortSignal): Promise<Rating> {
  const files = await listed(volume, run, signal);
  const now = files?.find((entry) => entry.name === `${place}.json`);
  if (now && now.mtime !== known?.mtime) throw new Error("Somebody else has rated this answer meanwhile. Open it again to see how.");
  if (!files) await change("POST", withQuery(`/volumecontent/${volume}/dir`, { path: directory(run), force: true }));
  const { mtime } = await change<Schemas["Entry"]>("PUT", file(volume, run, place), { row, gradingResult: verdict });
  return { mtime, row, verdict };
}

/** Lays ratings over the document of a run, which is changed. */
export function rate(document: unknown, ratings: Ratings): void {
  const results = object(object(document)["results"]);
  const rows = list(results["results"]);
  for (const [at, value] of rows.entries()) {
    const before = object(value);
    const [test, column] = [number(before["testIdx"]), number(before["promptIdx"])];
    const rating = ratings.get(`${test}.${column}`);
    if (!rating?.row || rating.row !== before["id"]) continue;
    const after = judged(before, rating.verdict);
    rows[at] = after;
    addAnew(object(object(list(results["prompts"])[column])["metrics"]), before, after);
    const stats = object(results["stats"]);
    plus(stats, COUNTS[outcome(before)].run, -1);
    plus(stats, COUNTS[outcome(after)].run, 1);
  }
}

type Outcome = "passed" | "failed" | "error";
const COUNTS = {
  passed: { run: "successes", column: "testPassCount" },
  failed: { run: "failures", column: "testFailCount" },
  error: { run: "errors", column: "testErrorCount" },
};

const outcome = (row: Json): Outcome => (row["success"] === true ? "passed" : number(row["failureReason"]) > 1 ? "error" : "failed");
const parts = (row: Json): Json[] => list(object(row["gradingResult"])["componentResults"]).map(object);

/** The row with another verdict. */
function judged(before: Json, verdict: Json): Json {
  const pass = verdict["pass"] === true;
  const isAnswered = (object(before["response"])["output"] ?? null) !== null;
  const byHuman = list(verdict["componentResults"]).some((part) => object(object(part)["assertion"])["type"] === "human");
  // Without an answer it is an error again when nobody says otherwise any more.
  const isError = !pass && !byHuman && (number(before["failureReason"]) === 2 || !isAnswered);
  const after: Json = { ...before, success: pass, score: number(verdict["score"]), failureReason: pass ? 0 : isError ? 2 : 1, gradingResult: verdict };
  if (verdict["namedScores"]) after["namedScores"] = object(verdict["namedScores"]);
  if (isAnswered && !isError) {
    if (pass) delete after["error"];
    else after["error"] = string(verdict["reason"]) ?? "";
  }
  return after;
}

/** Updates the sums of a column. */
function addAnew(sums: Json, before: Json, after: Json): void {
  plus(sums, COUNTS[outcome(before)].column, -1);
  plus(sums, COUNTS[outcome(after)].column, 1);
  plus(sums, "score", number(after["score"]) - number(before["score"]));
  const count = (row: Json, pass: boolean) => parts(row).filter((part) => (part["pass"] === true) === pass).length;
  plus(sums, "assertPassCount", count(after, true) - count(before, true));
  plus(sums, "assertFailCount", count(after, false) - count(before, false));
  const named = object(sums["namedScores"]);
  for (const [name, score] of Object.entries(object(after["namedScores"]))) {
    const old = object(before["namedScores"]);
    if (Object.hasOwn(named, name)) plus(named, name, number(score) - (Object.hasOwn(old, name) ? number(old[name]) : 0));
  }
}

interface Source {
  source?: string;
}
const exact = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;

/** Numbers that JavaScript would round stay as they are written, where the browser can do that. */
function unrounded(_: string, value: unknown, context?: Source): unknown {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && exact && context?.source !== undefined ? exact(context.source) : value;
}

/** Saves the document of a run with its ratings as a file. */
export async function save(volume: string, run: string): Promise<void> {
  const signal = new AbortController().signal;
  try {
    const path = withQuery(`/dashboard/api/volumecontent/${volume}/file`, { path: `${RUNS}/${run}.json` });
    const text = await (await checked(await fetch(path))).text();
    const whole: unknown = JSON.parse(text, unrounded as (key: string, value: unknown) => unknown);
    rate(whole, await ratings(volume, run, signal));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(whole)], { type: "application/json" }));
    link.download = `${run}.json`;
    link.click();
    // The download has begun by then.
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    // A browser says as much of a link that fails.
    alert(`The run was not saved: ${error instanceof Error ? error.message : String(error)}`);
  }
}
