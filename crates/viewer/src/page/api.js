// Asks the server.

const soon = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function ask(method, path, body, tries = method === "GET" ? 3 : 1) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    // The server may be fine: see start.js. Only reading is tried again, for nobody knows whether a change was made.
    if (tries > 1) return soon(300).then(() => ask(method, path, body, tries - 1));
    throw new Error("the server does not answer; is `sandcove view` still running?");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const told = await response.json().catch(() => ({}));
  const error = new Error(told.error || `the server answered with status ${response.status}`);
  error.status = response.status;
  throw error;
}

/** The address of a run in the API. */
const run = (id) => `/api/eval/${encodeURIComponent(id)}`;

export const api = {
  /** What the pages offer: changes of runs, ratings of answers, and the formats of files. */
  can: { change: true, rate: true, exports: ["csv", "json", "config", "failed"] },
  runs: () => ask("GET", "/api/results?includeProviders=true").then((answer) => answer.data),
  page: (id, query) => ask("GET", `${run(id)}/table?${query}`),
  row: (id, key) => ask("GET", `${run(id)}/results/${encodeURIComponent(key)}`),
  rate: (id, key, verdict) => ask("POST", `${run(id)}/results/${encodeURIComponent(key)}/rating`, verdict),
  scores: (id) => ask("GET", `${run(id)}/scores`).then((answer) => answer.scores),
  history: () => ask("GET", "/api/history").then((answer) => answer.data),
  metadataKeys: (id) => ask("GET", `${run(id)}/metadata-keys`).then((answer) => answer.keys),
  metadataValues: (id, key) => ask("GET", `${run(id)}/metadata-values?key=${encodeURIComponent(key)}`).then((answer) => answer.values),
  rename: (id, description) => ask("PATCH", run(id), { config: { description } }),
  copy: (id) => ask("POST", `${run(id)}/copy`, {}),
  rerun: (id, what) => ask("POST", `${run(id)}/run`, what),
  stop: () => ask("POST", "/api/run/stop", {}),
  forget: (id) => ask("DELETE", run(id)),
  report: (id) => ask("GET", `/api/redteam/report/${encodeURIComponent(id)}`).then((answer) => answer.data),
  file: (id, format) => `${run(id)}/table?format=${format}`,
};

/** Calls `changed` after every change of what is stored, and after the server was away. */
export function listen(changed) {
  const events = new EventSource("/api/events");
  let first = true;
  events.addEventListener("init", () => {
    if (!first) changed();
    first = false;
  });
  events.addEventListener("update", () => changed());
}

/** Calls back for what the server runs: when it begins, with its lines as they come, and with its exit status. Returns what ends that. */
export function follow({ begins, prints, ends }) {
  const events = new EventSource("/api/run/output");
  events.addEventListener("start", begins);
  events.addEventListener("lines", (event) => prints(event.data));
  events.addEventListener("end", (event) => ends(Number(event.data)));
  return () => events.close();
}
