// Conditions on rows, as `sandcove view` has them (`crates/eval/src/view/filter.rs`).
import { type Json, type Row, member, object, string } from "./document";

const MODES: Record<string, (row: Row) => boolean> = {
  all: () => true,
  // What differs is for whoever sees all of a test.
  different: () => true,
  "newly-failing": (row) => !row.success,
  passes: (row) => row.success,
  failures: (row) => !row.success && !row.isError,
  errors: (row) => !row.success && row.isError,
  highlights: (row) => row.comment?.startsWith("!highlight") ?? false,
  "user-rated": (row) => row.parts.some((part) => part.isHuman),
};

const OPERATORS = ["equals", "not_equals", "contains", "not_contains", "exists", "is_defined", "eq", "neq", "gt", "gte", "lt", "lte"];
/** The keys of metadata of conditions that have no field. */
const KEYS: Record<string, string> = { plugin: "pluginId", strategy: "strategyId", severity: "severity", policy: "policyName" };

interface Filter {
  isOr: boolean;
  about: string;
  operator: string;
  value: unknown;
  field: string | null;
}

export interface Query {
  mode: string;
  /** Whether a text has what is looked for. */
  search: ((text: string) => boolean) | undefined;
  filters: Filter[];
  /** The conditions as text, equal for equal conditions. */
  asked: string;
  limit: number;
  offset: number;
  /** The most characters of a text. */
  brief: number;
  beside: string[];
}

/** A value as a template prints it. */
export function toText(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && !holdsMap(value)) return value.map((item: unknown) => (item === null ? "" : toText(item))).join(",");
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? null);
}

function holdsMap(items: unknown[]): boolean {
  return items.some((item) => (Array.isArray(item) ? holdsMap(item) : typeof item === "object" && item !== null));
}

/** Reads the query of a page. */
export function parse(text: string): Query {
  const given = new URLSearchParams(text);
  const count = (name: string, otherwise: number) => {
    const value = given.get(name) ?? String(otherwise);
    if (!/^\d+$/.test(value)) throw new Error(`invalid ${name} \`${value}\``);
    return Number(value);
  };
  const mode = given.get("filterMode") || "all";
  if (!Object.hasOwn(MODES, mode)) throw new Error(`unknown filterMode \`${mode}\``);
  const wanted = given.get("search") ?? "";
  return {
    mode,
    search: wanted ? search(wanted, given.get("searchMode") === "regex") : undefined,
    filters: given.getAll("filter").map(filter),
    asked: JSON.stringify([mode, wanted, given.get("searchMode"), given.getAll("filter")]),
    limit: Math.min(Math.max(count("limit", 50), 1), 1000),
    offset: count("offset", 0),
    brief: count("brief", 600),
    beside: given.getAll("comparisonEvalIds").flatMap((ids) => ids.split(",")).filter(Boolean),
  };
}

function search(wanted: string, isPattern: boolean): (text: string) => boolean {
  if (!isPattern) {
    const lower = wanted.toLowerCase();
    return (text) => text.toLowerCase().includes(lower);
  }
  // Flags at the start, which JavaScript does not know there.
  const [all, flags = ""] = /^\(\?([ims]+)\)/.exec(wanted) ?? [""];
  const pattern = wanted.slice(all.length);
  for (const kind of ["u", ""]) {
    try {
      const regex = new RegExp(pattern, `${[...new Set(`i${flags}`)].join("")}${kind}`);
      return (text) => regex.test(text);
    } catch {
      // Without Unicode more is allowed.
    }
  }
  throw new Error(`invalid regular expression \`${wanted}\``);
}

function filter(text: string): Filter {
  let given: Json = {};
  try {
    given = object(JSON.parse(text));
  } catch {
    // It has no type then.
  }
  const { type, operator, value = null, logicOperator = "and" } = given;
  const isKnown = typeof type === "string" && (type === "metric" || type === "metadata" || Object.hasOwn(KEYS, type));
  if (!isKnown || typeof operator !== "string" || !OPERATORS.includes(operator) || (logicOperator !== "and" && logicOperator !== "or")) {
    throw new Error(`invalid filter \`${text}\``);
  }
  return { isOr: logicOperator === "or", about: type, operator, value, field: string(given["field"]) };
}

/** Whether every row is an answer. */
export const isAll = (query: Query): boolean => query.mode === "all" && !query.search && query.filters.length === 0;

/** Whether a row is an answer. */
export function holds(query: Query, row: Row): boolean {
  return (MODES[query.mode]?.(row) ?? false) && (!query.search || texts(row).some(query.search)) && conditions(query.filters, row);
}

function texts(row: Row): string[] {
  const said = [row.description, row.error, row.reason, row.comment, ...row.parts.map((part) => part.reason)];
  return [row.text, ...Object.values(row.vars).map(toText), ...said.filter((text) => text !== null)];
}

function conditions([first, ...others]: Filter[], row: Row): boolean {
  if (!first) return true;
  return others.reduce((soFar, one) => (one.isOr ? soFar || isMet(one, row) : soFar && isMet(one, row)), isMet(first, row));
}

/** The metadata of the answer or the test. */
export function metadata(row: Row, key: string): unknown {
  return (Object.hasOwn(row.metadata, key) ? row.metadata[key] : member(row.testMetadata, key)) ?? undefined;
}

function isMet(filter: Filter, row: Row): boolean {
  if (filter.about === "metric") return isMetric(filter, row);
  const found = metadata(row, KEYS[filter.about] ?? filter.field ?? "");
  const text = found === undefined ? "" : toText(found);
  const wanted = toText(filter.value);
  switch (filter.operator) {
    case "exists": case "is_defined": return found !== undefined;
    case "contains": return text.includes(wanted);
    case "not_contains": return !text.includes(wanted);
    case "not_equals": case "neq": return text !== wanted;
    default: return found !== undefined && text === wanted;
  }
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

function isMetric(filter: Filter, row: Row): boolean {
  // Before conditions had fields, the value was the name.
  const score = member(row.namedScores, filter.field ?? toText(filter.value));
  if (typeof score !== "number") return false;
  const text = toText(filter.value).trim();
  const wanted = NUMBER.test(text) ? Number(text) : NaN;
  switch (filter.operator) {
    case "eq": return Math.abs(score - wanted) < 1e-9;
    case "neq": case "not_equals": return Math.abs(score - wanted) >= 1e-9;
    case "gt": return score > wanted;
    case "gte": return score >= wanted;
    case "lt": return score < wanted;
    case "lte": return score <= wanted;
    case "equals": return filter.field === null || Math.abs(score - wanted) < 1e-9;
    default: return true;
  }
}
