// The document of a run, as the viewer reads it. Everybody who can write to the volume may have written anything into it, so every part has
// the type that it should have, or is left out.

export type Json = Record<string, unknown>;

export const object = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});
export const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
export const number = (value: unknown): number => (typeof value === "number" && Number.isFinite(value) ? value : 0);
export const string = (value: unknown): string | null => (typeof value === "string" ? value : null);
/** A member that the object has itself. */
export const member = (of: Json, name: string): unknown => (Object.hasOwn(of, name) ? of[name] : undefined);
/** Adds to a sum. */
export const plus = (sums: Json, name: string, more: number): void => {
  sums[name] = number(member(sums, name)) + more;
};

/** A check of an answer. */
export interface Part {
  pass: boolean;
  reason: string | null;
  isHuman: boolean;
}

/** An answer to a test. */
export interface Row {
  test: number;
  column: number;
  success: boolean;
  isError: boolean;
  /** The answer, or why there is none. */
  text: string;
  vars: Json;
  error: string | null;
  description: string | null;
  reason: string | null;
  comment: string | null;
  parts: Part[];
  metadata: Json;
  testMetadata: Json;
  namedScores: Json;
  score: number;
  latency: number;
  cost: number | null;
  tokens: Json | null;
  /** The row as it is stored. */
  whole: Json;
}

export interface Run {
  id: string;
  createdAt: string;
  description: string | null;
  author: unknown;
  tags: unknown;
  isRedteam: boolean;
  stats: Json;
  vars: string[];
  prompts: Json[];
  /** The rows of each test, by column; the tests by number. */
  tests: Map<number, Row[]>;
}

const COUNTS = ["testPassCount", "testFailCount", "testErrorCount", "score", "totalLatencyMs", "cost"];

function column(value: unknown): Json {
  const prompt = object(value);
  const metrics = object(prompt["metrics"]);
  const counts = Object.fromEntries(COUNTS.map((name) => [name, number(metrics[name])]));
  const text = (name: string) => ({ [name]: string(prompt[name]) ?? "" });
  return { ...prompt, ...text("provider"), ...text("label"), ...text("raw"), metrics: { ...metrics, ...counts, namedScores: numbers(metrics["namedScores"]), namedScoresCount: numbers(metrics["namedScoresCount"]) } };
}

function numbers(value: unknown): Json {
  return Object.fromEntries(Object.entries(object(value)).filter(([, one]) => typeof one === "number"));
}

function part(value: unknown): Part {
  const { pass, reason, assertion } = object(value);
  return { pass: pass === true, reason: string(reason), isHuman: object(assertion)["type"] === "human" };
}

function row(value: unknown): Row {
  const whole = object(value);
  const verdict = object(whole["gradingResult"]);
  const answer = object(whole["response"])["output"];
  const error = string(whole["error"]);
  const failure = number(whole["failureReason"]);
  return {
    test: number(whole["testIdx"]),
    column: number(whole["promptIdx"]),
    success: whole["success"] === true,
    isError: failure !== 0 && failure !== 1,
    text: typeof answer === "string" ? answer : answer === undefined || answer === null ? (error ?? "") : JSON.stringify(answer),
    vars: object(whole["vars"]),
    error,
    description: string(whole["description"]),
    reason: string(verdict["reason"]),
    comment: string(verdict["comment"]),
    parts: list(verdict["componentResults"]).map(part),
    metadata: object(whole["metadata"]),
    testMetadata: object(object(whole["testCase"])["metadata"]),
    namedScores: object(whole["namedScores"]),
    score: number(whole["score"]),
    latency: number(whole["latencyMs"]),
    cost: typeof whole["cost"] === "number" ? whole["cost"] : null,
    tokens: typeof whole["tokenUsage"] === "object" && whole["tokenUsage"] !== null ? object(whole["tokenUsage"]) : null,
    whole,
  };
}

/** Reads the document of the run `id`. */
export function read(id: string, value: unknown): Run {
  const document = object(value);
  const [results, config] = [object(document["results"]), object(document["config"])];
  const rows = list(results["results"]).map(row).sort((a, b) => a.test - b.test || a.column - b.column);
  const tests = new Map<number, Row[]>();
  for (const one of rows) {
    const group = tests.get(one.test);
    if (group) group.push(one);
    else tests.set(one.test, [one]);
  }
  return {
    id,
    createdAt: string(results["timestamp"]) ?? "",
    description: string(config["description"]),
    author: string(object(document["metadata"])["author"]),
    tags: config["tags"] ?? null,
    isRedteam: (config["redteam"] ?? null) !== null,
    stats: object(results["stats"]),
    vars: list(document["vars"]).filter((name) => typeof name === "string"),
    prompts: list(results["prompts"]).map(column),
    tests,
  };
}
