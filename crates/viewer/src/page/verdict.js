// Why an answer passed or not: every check with what it wanted, and what was seen when code ran.

import { block, plain } from "./code.js";
import { inline } from "./diff.js";
import { h } from "./dom.js";
import { duration, number } from "./table.js";

const text = (value) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value, null, 2));

/** Checks whose value is the text they want, or one like it. */
const WANTS_TEXT = new Set(["equals", "levenshtein", "similar", "rouge-n", "bleu", "gleu", "meteor", "starts-with"]);

/** A stream, unless it is empty. */
function stream(name, content, kind = "") {
  if (!content) return null;
  return h("div", { class: `stream ${kind}` }, h("h4", { text: name }), plain(text(content)));
}

function megabytes(bytes) {
  return `${number(bytes / 1048576, 1)} MiB`;
}

/** What an execution used and how it ended. */
function measures(run) {
  const found = [];
  if (typeof run.durationMs === "number") found.push(["time", duration(run.durationMs)]);
  if (run.exitCode !== undefined && run.exitCode !== null) found.push(["exit", String(run.exitCode)]);
  if (typeof run.memoryBytes === "number") found.push(["memory", megabytes(run.memoryBytes)]);
  if (typeof run.cpuMs === "number") found.push(["cpu", duration(run.cpuMs)]);
  if (run.stopped) found.push(["stopped", text(run.stopped)]);
  return found.length ? h("dl", { class: "measures" }, found.map(([name, value]) => [h("dt", { text: name }), h("dd", { text: value })])) : null;
}

function execution(run, expected) {
  const error = run.error;
  const printed = text(run.stdout);
  const differs = expected !== undefined && run.pass === false && text(expected).trim() !== printed.trim();
  return [
    measures(run),
    run.reason && h("p", { class: "why", text: run.reason }),
    differs && h("div", { class: "stream" }, h("h4", { text: "expected, and what was printed" }), inline(text(expected).trimEnd(), printed.trimEnd())),
    stream("stdout", printed),
    stream("stderr", run.stderr, "bad"),
    error && stream(`error: ${error.name || ""}`, error.traceback || error.value || text(error), "bad"),
  ];
}

/** What the assertion expects of its case, where that is plain. */
function expectation(assertion, vars, at, count) {
  const settings = assertion && typeof assertion.value === "object" && assertion.value ? assertion.value : {};
  const cases = settings.cases || settings.test_cases || vars.test_cases;
  if (Array.isArray(cases) && cases[at]) return cases[at].expected_output ?? cases[at].expected_stdout ?? cases[at].expected ?? cases[at].output;
  if (count > 1) return undefined;
  return settings.expected_stdout ?? settings.expected_output ?? vars.expected_stdout ?? vars.expected_output;
}

function codeParts(code, assertion, vars) {
  const runs = code.cases || code.tests || [];
  return [
    code.source && h("details", {}, h("summary", { text: "The code" }), block(text(code.source), code.language)),
    (code.unsafe || []).map((finding) => h("p", { class: "why", text: `line ${finding.line}: ${text(finding.what)}` })),
    runs.map((run, at) => h("details", { class: "run-case", open: run.pass === false },
      h("summary", {}, h("span", { class: `chip ${run.pass ? "PASS" : "FAIL"}`, text: run.pass ? "PASS" : "FAIL" }), ` ${text(run.name) || `case ${at + 1}`}`),
      execution(run, expectation(assertion, vars, at, runs.length)))),
  ];
}

/** Everything else that a grader told. */
function others(metadata) {
  const parts = [];
  const rest = {};
  for (const [key, value] of Object.entries(metadata)) {
    if (key === "code" || key === "made") continue;
    if (["stdout", "stderr", "logs", "log", "output"].includes(key)) parts.push(stream(key, value, key === "stderr" ? "bad" : ""));
    else if (key === "execution" && value && typeof value === "object") parts.push(execution(value));
    else rest[key] = value;
  }
  if (Object.keys(rest).length) parts.push(h("details", {}, h("summary", { text: "More" }), block(JSON.stringify(rest, null, 2), "json")));
  return parts;
}

function wanted(assertion, output) {
  const { value, type = "" } = assertion;
  if (value === undefined || value === null) return null;
  const shown = text(value);
  const kind = type.replace(/^not-/, "");
  if (WANTS_TEXT.has(kind) && typeof output === "string" && shown !== output) {
    return h("details", { open: kind === "equals" }, h("summary", { text: "Expected, and the answer" }), inline(shown, output));
  }
  if (kind === "javascript" || kind === "python" || kind === "ruby") return block(shown, kind);
  return typeof value === "object" ? h("details", {}, h("summary", { text: "Value" }), block(shown, "json")) : plain(shown, { "aria-label": "value" });
}

/** One check; sets have checks of their own. */
function check(part, row) {
  const assertion = part.assertion || {};
  const output = row.response && row.response.output;
  const metadata = part.metadata || {};
  const facts = [`score ${number(part.score, 4)}`];
  if (assertion.threshold !== undefined) facts.push(`threshold ${text(assertion.threshold)}`);
  if (assertion.weight !== undefined) facts.push(`weight ${text(assertion.weight)}`);
  if (assertion.metric) facts.push(`metric ${text(assertion.metric)}`);
  return h("li", { class: `check ${part.pass ? "PASS" : "FAIL"}` },
    h("div", { class: "check-head" },
      h("span", { class: `chip ${part.pass ? "PASS" : "FAIL"}`, text: part.pass ? "PASS" : "FAIL" }),
      h("b", { text: text(assertion.type) || "check" }), h("span", { class: "faint", text: facts.join(" · ") })),
    part.reason && plain(part.reason, { class: part.pass ? "plain faint" : "plain why" }),
    wanted(assertion, output),
    metadata.code && codeParts(metadata.code, assertion, row.vars || {}),
    others(metadata),
    part.comment && h("p", { text: part.comment }),
    (part.componentResults || []).length > 0 && h("ol", { class: "checks" }, part.componentResults.map((inner) => check(inner, row))));
}

/** All checks of a row, those that fail first. */
export function checks(row) {
  const verdict = row.gradingResult;
  const parts = (verdict && verdict.componentResults) || [];
  const sorted = [...parts.filter((part) => !part.pass), ...parts.filter((part) => part.pass)];
  return h("section", { class: "checks-part" }, h("h3", { text: `Checks${parts.length ? ` (${parts.filter((part) => part.pass).length} of ${parts.length} hold)` : ""}` }),
    row.error && !sorted.some((part) => part.reason === row.error) && plain(row.error, { class: "plain why" }),
    sorted.length ? h("ol", { class: "checks" }, sorted.map((part) => check(part, row))) : h("p", { class: "faint", text: "Nothing was checked." }));
}

/** What a provider that runs code saw. */
export function ran(row) {
  const run = row.response && row.response.metadata && row.response.metadata.execution;
  return run && typeof run === "object" ? h("section", {}, h("h3", { text: "Execution" }), execution(run)) : null;
}
