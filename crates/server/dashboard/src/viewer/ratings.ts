// What people think of the answers of a shared run. The rating of an answer is a file of its own, so that nobody overwrites what others say about
// other answers. It is laid over the run when that is read, as `sandcove view` changes a stored run (`crates/eval/src/view/rate.rs`).
import { type Schemas, ApiError, change, checked, get, withQuery } from "../api/client";
import { RUNS, entries } from "../api/evaluations";
import { type Json, list, number, object, plus, string } from "./document";

/** Files that are read at once. */
const AT_ONCE = 8;
/** Bytes of a rating: it is little more than a comment. */
const MAX_SIZE = 1_000_000;
const FILE = /^\d+\.\d+\.json$/;

/** What a person says of an answer. The checks stay as the run has them. */
interface Opinion {
  /** Nothing if it is not judged. */
  pass: boolean | null;
  score: number;
  comment: string;
}

/** The rating of an answer. */
export interface Rating {
  /** Time at which the file was written. */
  mtime: string;
  /** Id of the row that was rated. A run that was shared again may have another answer in its place. */
  row: string | null;
  opinion: Opinion;
}

/** Ratings by the place of the answer, as in `12.0`: the test, then the column. */
export type Ratings = Map<string, Rating>;
/** The ratings that there were for the places of rows when those were read, also those that are of another answer or damaged. */
const ratingsOf = new WeakMap<Json, Rating>();

const directory = (run: string) => `${RUNS}/${run}.ratings`;
const file = (volume: string, run: string, place: string) => withQuery(`/volumecontent/${volume}/file`, { path: `${directory(run)}/${place}.json` });

/** The files of ratings; nothing if there is no directory for them. */
async function listed(volume: string, run: string, signal: AbortSignal): Promise<Schemas["Entry"][] | undefined> {
  const all = await entries(volume, signal);
  if (!all.some((entry) => entry.name === `${run}.json`)) throw new ApiError(404, "This run is not shared, or not any more.");
  // Most runs have none, and a browser reports everything that it asks for in vain.
  if (!all.some((entry) => entry.name === `${run}.ratings` && entry.type === "directory")) return undefined;
  return (await entries(volume, signal, directory(run))).filter((entry) => entry.type === "file" && FILE.test(entry.name));
}

/** Reads the ratings of a run, of those in `known` only what has changed. `failed` is called for each that cannot be read now. */
export async function ratings(volume: string, run: string, known: Ratings, failed: (error: unknown) => void, signal: AbortSignal): Promise<Ratings> {
  const files = (await listed(volume, run, signal)) ?? [];
  const found: Ratings = new Map();
  const read = async ({ name, mtime, size }: Schemas["Entry"]) => {
    const place = name.slice(0, -".json".length);
    const before = known.get(place);
    if (before?.mtime === mtime) found.set(place, before);
    else found.set(place, { mtime, ...rating(size > MAX_SIZE ? undefined : await get<unknown>(file(volume, run, place), {}, signal).catch(damaged)) });
  };
  for (let first = 0; first < files.length; first += AT_ONCE) {
    await Promise.all(files.slice(first, first + AT_ONCE).map((entry) => read(entry).catch(failed)));
  }
  return found;
}

/** Nothing for a file that was deleted meanwhile or is no JSON: no row has its id. */
function damaged(error: unknown): undefined {
  if (error instanceof SyntaxError || (error instanceof ApiError && error.status === 404)) return undefined;
  throw error;
}

function rating(value: unknown): Omit<Rating, "mtime"> {
  const { row, pass, score, comment } = object(value);
  return { row: string(row), opinion: { pass: typeof pass === "boolean" ? pass : null, score: number(score), comment: string(comment) ?? "" } };
}

/** Stores the rating of an answer, unless somebody has rated it since `seen` was read, the row of a rated document. */
export async function store(volume: string, run: string, place: string, verdict: Json, seen: Json, signal: AbortSignal): Promise<Rating> {
  const row = string(seen["id"]);
  if (!row) throw new Error("This answer has no id, and cannot be rated.");
  const opinion = opinionOf(verdict);
  const content = { row, ...opinion };
  if (new Blob([JSON.stringify(content)]).size > MAX_SIZE) throw new Error("This comment is too long to be stored.");
  const files = await listed(volume, run, signal);
  const now = files?.find((entry) => entry.name === `${place}.json`);
  if (now?.mtime !== ratingsOf.get(seen)?.mtime) throw new Error("Somebody else has rated this answer meanwhile. Nothing was stored: look at it again.");
  if (!files) await change("POST", withQuery(`/volumecontent/${volume}/dir`, { path: directory(run), force: true }));
  const { mtime } = await change<Schemas["Entry"]>("PUT", file(volume, run, place), content);
  return { mtime, row, opinion };
}

/** The document of a run with ratings. The one that was read stays as it is: what is said later is laid over what the checks said, too, and
 * not over what somebody said before. */
export function rated(document: unknown, ratings: Ratings): Json {
  const whole = object(document);
  const results = { ...object(whole["results"]) };
  const stats = copy(results, "stats");
  const sums = new Map<number, Json>();
  const prompts = list(results["prompts"]).map((value, column) => {
    const prompt = { ...object(value) };
    const metrics = copy(prompt, "metrics");
    copy(metrics, "namedScores");
    sums.set(column, metrics);
    return prompt;
  });
  let isRated = false;
  const rows = list(results["results"]).map((value) => {
    const before = object(value);
    const [test, column] = [number(before["testIdx"]), number(before["promptIdx"])];
    const rating = ratings.get(`${test}.${column}`);
    if (!rating) return value;
    const after = rating.row && rating.row === before["id"] ? judged(before, verdict(before, rating.opinion)) : before;
    ratingsOf.set(after, rating);
    if (after === before) return value;
    isRated = true;
    addAnew(sums.get(column) ?? {}, before, after);
    plus(stats, COUNTS[outcome(before)].run, -1);
    plus(stats, COUNTS[outcome(after)].run, 1);
    return after;
  });
  return isRated ? { ...whole, results: { ...results, prompts, results: rows } } : whole;
}

/** Puts a copy of a member into its place, if there is one. */
function copy(of: Json, name: string): Json {
  const copied = { ...object(of[name]) };
  if (Object.hasOwn(of, name)) of[name] = copied;
  return copied;
}

const isHuman = (part: Json): boolean => object(part["assertion"])["type"] === "human";

/** What a person says in a verdict that the page made. */
function opinionOf(verdict: Json): Opinion {
  const human = list(verdict["componentResults"]).map(object).find(isHuman);
  return { pass: human ? human["pass"] === true : null, score: number(human?.["score"]), comment: string(verdict["comment"]) ?? "" };
}

/** The verdict of a row with an opinion, as the page makes it (`crates/viewer/src/page/rating.js`). */
function verdict(row: Json, { pass, score, comment }: Opinion): Json {
  const given = row["gradingResult"];
  const now = typeof given === "object" && given !== null ? object(given) : { pass: row["success"] === true, score: number(row["score"]), reason: string(row["error"]) ?? "" };
  const all = parts({ gradingResult: now });
  const human = all.find(isHuman);
  // What the checks said, of a run that was rated before it was shared.
  const before = object(human?.["metadata"])["made"];
  const made = before ? object(before) : { pass: now["pass"], score: now["score"], reason: now["reason"] };
  const others = all.filter((part) => !isHuman(part));
  const result: Json = { ...now, ...made, componentResults: others };
  if (comment) result["comment"] = comment;
  else delete result["comment"];
  if (pass === null) return result;
  const said = { pass, score, reason: "rated by a person" };
  return { ...result, ...said, componentResults: [...others, { ...said, assertion: { type: "human" }, metadata: { made } }] };
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

/** Has the browser save the document of a run, with its ratings if it has some now. */
export async function save(volume: string, run: string): Promise<void> {
  const signal = new AbortController().signal;
  const path = withQuery(`/dashboard/api/volumecontent/${volume}/file`, { path: `${RUNS}/${run}.json` });
  const link = document.createElement("a");
  link.download = `${run}.json`;
  link.href = path;
  try {
    const known = await ratings(volume, run, new Map(), thrown, signal);
    if (known.size > 0) {
      const text = await (await checked(await fetch(path))).text();
      const whole: unknown = JSON.parse(text, unrounded as (key: string, value: unknown) => unknown);
      link.href = URL.createObjectURL(new Blob([JSON.stringify(rated(whole, known))], { type: "application/json" }));
      // The download has begun by then.
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    }
    link.click();
  } catch (error) {
    // A browser says as much of a link that fails.
    alert(`The run was not saved: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function thrown(error: unknown): never {
  throw error;
}
