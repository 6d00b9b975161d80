// The tables of runs, made in the browser as `sandcove view` makes them (`crates/eval/src/view`).
import { type Json, type Part, type Row, type Run, number, object, plus, string } from "./document";
import { type Query, holds, isAll, metadata, toText } from "./filter";

/** The tests that answer a question, and the sums over their rows, by column. */
interface Found {
  tests: number[];
  sums: Json[];
}

/** The last question about a run, for its next page. */
const recent = new WeakMap<Run, { asked: string; beside: Run[]; found: Found }>();
const partners = new WeakMap<Run, Map<string, number[]>>();

/** A page of the table of a run, with the columns of other runs. */
export function page(run: Run, beside: Run[], query: Query): Json {
  const found = isAll(query) ? { tests: [...run.tests.keys()], sums: null } : answers(run, beside, query);
  const tests = found.tests.slice(query.offset, query.offset + query.limit);
  return {
    table: {
      head: { prompts: [...run.prompts, ...beside.flatMap((other) => other.prompts.map((column) => labelled(column, other.id)))], vars: run.vars },
      body: tests.map((test) => line(run, beside, test, query.brief)),
    },
    totalCount: run.tests.size,
    filteredCount: found.tests.length,
    filteredMetrics: found.sums,
    config: { description: run.description, tags: run.tags },
    isRedteam: run.isRedteam,
    author: run.author,
    version: 4,
    id: run.id,
    createdAt: run.createdAt,
    description: run.description,
    stats: run.stats,
    isRepeatable: false,
  };
}

/** A column of another run says of which. */
function labelled(column: Json, id: string): Json {
  return { ...column, label: `[${id}] ${string(column["label"]) ?? ""}`, evalId: id };
}

function line(run: Run, beside: Run[], test: number, brief: number): Json {
  const rows = run.tests.get(test) ?? [];
  const [first] = rows;
  const others = beside.flatMap((other) => cells(first ? partner(other, test, first) : [], other.prompts.length, brief, other.id));
  const vars = run.vars.map((name) => (first && Object.hasOwn(first.vars, name) ? cut(shown(first.vars[name]), brief) : ""));
  return { testIdx: test, description: first?.description ?? null, vars, outputs: [...cells(rows, run.prompts.length, brief), ...others] };
}

function cells(rows: Row[], columns: number, brief: number, id?: string): (Json | null)[] {
  const made: (Json | null)[] = new Array<null>(columns).fill(null);
  for (const row of rows) if (row.column in made) made[row.column] = { ...cell(row, brief), ...(id === undefined ? {} : { evalId: id }) };
  return made;
}

/** The beginning of a text; no character is cut in two. */
function cut(text: string, most: number): string {
  return text.length <= most ? text : Array.from(text.slice(0, 2 * most)).slice(0, most).join("");
}

function cell(row: Row, brief: number): Json {
  const { id, provider } = row.whole;
  const { label, id: name } = object(provider);
  const text = cut(row.text, brief);
  return {
    id: string(id) ?? `${row.test}.${row.column}`,
    testIdx: row.test,
    promptIdx: row.column,
    pass: row.success,
    score: row.score,
    failureReason: number(row.whole["failureReason"]),
    latencyMs: row.latency,
    cost: row.cost,
    namedScores: row.namedScores,
    tokenUsage: row.tokens,
    provider: string(label) || string(name) || "",
    text,
    cut: text.length < row.text.length,
    error: row.success || row.error === null ? null : cut(row.error, brief),
    passed: row.parts.filter((part) => part.pass).length,
    assertions: row.parts.length,
    comment: row.comment === null ? null : cut(row.comment, brief),
    rated: row.parts.findLast((part: Part) => part.isHuman)?.pass ?? null,
  };
}

/** A value as tables show it: lists and maps as JSON, so that `["a", "b"]` is not taken for the text `a,b`. */
function shown(value: unknown): string {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : toText(value);
}

/** Equal for equal variables. */
function about(vars: Json): string {
  return JSON.stringify(Object.keys(vars).sort().map((name) => [name, vars[name]]));
}

/** The rows of the other run's test with the same variables: the one at the same place if there are several. */
function partner(other: Run, test: number, row: Row): Row[] {
  let known = partners.get(other);
  if (!known) {
    known = new Map<string, number[]>();
    for (const [number, rows] of other.tests) {
      for (const key of new Set(rows.map((one) => about(one.vars)))) {
        const tests = known.get(key);
        if (tests) tests.push(number);
        else known.set(key, [number]);
      }
    }
    partners.set(other, known);
  }
  const tests = known.get(about(row.vars)) ?? [];
  return other.tests.get(tests.includes(test) ? test : (tests[0] ?? -1)) ?? [];
}

/** Answers a question. A test is an answer if one of its rows is. */
function answers(run: Run, beside: Run[], query: Query): Found {
  const known = recent.get(run);
  if (known?.asked === query.asked && known.beside.length === beside.length && known.beside.every((other, at) => other === beside[at])) return known.found;
  const found: Found = { tests: [], sums: run.prompts.map(nothing) };
  const isNews = (test: number, row: Row) => beside.some((other) => partner(other, test, row).some((one) => one.column === row.column && one.success));
  const differs = (test: number, rows: Row[]) => {
    const [first] = rows;
    const others = first ? beside.flatMap((other) => partner(other, test, first)) : [];
    return [...rows, ...others].some((one) => one.text !== first?.text);
  };
  for (const [test, rows] of run.tests) {
    if (!rows.some((row) => holds(query, row) && (query.mode !== "newly-failing" || isNews(test, row)))) continue;
    if (query.mode === "different" && !differs(test, rows)) continue;
    found.tests.push(test);
    for (const row of rows) add(found.sums[row.column], row);
  }
  recent.set(run, { asked: query.asked, beside, found });
  return found;
}

function nothing(): Json {
  const counts = { score: 0, testPassCount: 0, testFailCount: 0, testErrorCount: 0, assertPassCount: 0, assertFailCount: 0, totalLatencyMs: 0 };
  return { ...counts, tokenUsage: {}, namedScores: {}, namedScoresCount: {}, namedScoreWeights: {}, cost: 0 };
}

function add(sums: Json | undefined, row: Row): void {
  if (!sums) return;
  plus(sums, row.success ? "testPassCount" : row.isError ? "testErrorCount" : "testFailCount", 1);
  plus(sums, "score", row.score);
  plus(sums, "totalLatencyMs", row.latency);
  plus(sums, "cost", row.cost ?? 0);
  if (row.cost === null) plus(sums, "unknownCostCount", 1);
  const passed = row.parts.filter((part) => part.pass).length;
  plus(sums, "assertPassCount", passed);
  plus(sums, "assertFailCount", row.parts.length - passed);
  if (row.tokens) addTokens(object(sums["tokenUsage"]), row.tokens);
  for (const [name, score] of Object.entries(row.namedScores)) {
    plus(object(sums["namedScores"]), name, number(score));
    plus(object(sums["namedScoresCount"]), name, 1);
  }
}

function addTokens(sums: Json, more: Json): void {
  for (const name of ["total", "prompt", "completion", "cached", "numRequests"]) plus(sums, name, number(more[name]));
  const details = Object.entries(object(more["completionDetails"]));
  if (details.length > 0) sums["completionDetails"] ??= {};
  for (const [name, count] of details) plus(object(sums["completionDetails"]), name, number(count));
  if (typeof more["assertions"] !== "object" || more["assertions"] === null) return;
  sums["assertions"] ??= {};
  addTokens(object(sums["assertions"]), object(more["assertions"]));
}

const rows = (run: Run) => [...run.tests.values()].flat();

/** The row at a place as in `12.0`: the test, then the column. */
export function find(run: Run, place: string): Json {
  const [test, column] = place.split(".").map(Number);
  const found = run.tests.get(test ?? -1)?.find((row) => row.column === column);
  if (!found) throw new Error(`\`${run.id}\` has no row \`${place}\``);
  return found.whole;
}

/** Counts the rows of each column by tenths of the score: eleven counts, the last for a score of 1 and more. */
export function scores(run: Run): number[][] {
  const counts = run.prompts.map(() => new Array<number>(11).fill(0));
  for (const row of rows(run)) {
    const own = counts[row.column];
    const at = Math.floor(Math.min(Math.max(row.score * 10 + 1e-9, 0), 10));
    if (own) own[at] = (own[at] ?? 0) + 1;
  }
  return counts;
}

/** The keys of metadata that rows have. */
export function metadataKeys(run: Run): string[] {
  const keys = rows(run).flatMap((row) => [...Object.keys(row.metadata), ...Object.keys(row.testMetadata)]);
  return [...new Set(keys)].filter((key) => !key.startsWith("_")).sort();
}

/** The values that rows have for a key of metadata, at most a thousand. */
export function metadataValues(run: Run, key: string): string[] {
  const values = new Set<string>();
  for (const row of rows(run)) {
    const value = metadata(row, key);
    if (values.size < 1000 && value !== undefined) values.add(cut(toText(value), 200));
  }
  return [...values].sort();
}
