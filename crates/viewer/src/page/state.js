// What the page shows: kept in its address, so that it can be sent to somebody and walked back.

import { place } from "./place.js";

export const MODES = [
  ["all", "All"], ["failures", "Failures"], ["passes", "Passes"], ["errors", "Errors"],
  ["different", "Different"], ["newly-failing", "Newly failing"], ["highlights", "Highlighted"], ["user-rated", "Rated"],
];

export const SIZES = [25, 50, 100, 250, 1000];

const EMPTY = { id: "", mode: "all", search: "", regex: false, filters: [], beside: [], page: 0, size: 50, cell: "" };

export const state = { ...EMPTY };

/** Takes the state from the address. */
export function read() {
  const { id, query } = place.read();
  const filter = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  };
  Object.assign(state, EMPTY, {
    id,
    mode: MODES.some(([mode]) => mode === query.get("filterMode")) ? query.get("filterMode") : "all",
    search: query.get("search") || "",
    regex: query.get("searchMode") === "regex",
    filters: query.getAll("filter").map(filter).filter((found) => found && typeof found === "object"),
    beside: query.getAll("comparisonEvalIds").filter(Boolean),
    page: Math.max(0, (parseInt(query.get("page"), 10) || 1) - 1),
    size: SIZES.includes(Number(query.get("limit"))) ? Number(query.get("limit")) : 50,
    cell: query.get("cell") || "",
  });
}

function pairs() {
  const query = new URLSearchParams();
  if (state.mode !== "all") query.set("filterMode", state.mode);
  if (state.search) query.set("search", state.search);
  if (state.search && state.regex) query.set("searchMode", "regex");
  for (const filter of state.filters) query.append("filter", JSON.stringify(filter));
  for (const id of state.beside) query.append("comparisonEvalIds", id);
  return query;
}

/** Writes the state to the address. What can be walked back to gets an entry in the history. */
export function write(walkable = true) {
  const query = pairs();
  if (state.page) query.set("page", state.page + 1);
  if (state.size !== 50) query.set("limit", state.size);
  if (state.cell) query.set("cell", state.cell);
  const text = query.toString();
  place.write((state.id ? place.run(state.id) : place.runs) + (text ? `?${text}` : ""), walkable);
}

/** The query of the page of the table. `brief` is how much of each text is wanted. */
export function tableQuery(brief) {
  const query = pairs();
  query.set("limit", state.size);
  query.set("offset", state.page * state.size);
  query.set("brief", brief);
  return query.toString();
}

const KEY = "sandcove-view";

/** What a person prefers on this browser. */
export const taste = { height: "medium", charts: true, details: true, hidden: {}, ...stored() };

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) || {};
  } catch {
    return {};
  }
}

/** Remembers a preference. */
export function prefer(changes) {
  Object.assign(taste, changes);
  try {
    localStorage.setItem(KEY, JSON.stringify(taste));
  } catch {
    // A browser that keeps nothing still shows everything.
  }
}
