// What a person thinks of an answer: a part of its verdict, which then decides it.

import { api } from "./api.js";
import { keyOf, runOf } from "./table.js";

const isHuman = (part) => part.assertion && part.assertion.type === "human";

/** What a person said of a row: `pass` and `score` if it was judged, the comment and whether it is highlighted. */
export function opinion(row) {
  const verdict = row.gradingResult || {};
  const human = (verdict.componentResults || []).find(isHuman);
  const comment = verdict.comment || "";
  return {
    pass: human ? human.pass : null,
    score: human ? human.score : null,
    highlighted: comment.startsWith("!highlight"),
    comment: comment.replace(/^!highlight\s?/, ""),
  };
}

/** The verdict with another opinion. Without a judgement it is again what the checks made it. */
function verdict(row, wanted) {
  const now = row.gradingResult || { pass: row.success, score: row.score, reason: row.error || "" };
  const parts = now.componentResults || [];
  const human = parts.find(isHuman);
  const made = (human && human.metadata && human.metadata.made) || { pass: now.pass, score: now.score, reason: now.reason };
  const others = parts.filter((part) => !isHuman(part));
  const comment = `${wanted.highlighted ? "!highlight " : ""}${wanted.comment}`.trim();
  const result = { ...now, ...made, componentResults: others, comment: comment || undefined };
  if (wanted.pass === null) return result;
  const score = wanted.score ?? (wanted.pass ? 1 : 0);
  const reason = "rated by a person";
  return {
    ...result, pass: wanted.pass, score, reason,
    componentResults: [...others, { pass: wanted.pass, score, reason, assertion: { type: "human" }, metadata: { made } }],
  };
}

/** Changes what a person thinks of a cell's row; gives the row and the cell anew. */
export async function rate(cell, change) {
  const key = keyOf(cell);
  const row = await api.row(runOf(cell), key);
  const before = opinion(row);
  const wanted = { ...before, ...(typeof change === "function" ? change(before) : change) };
  const after = await api.rate(runOf(cell), key, verdict(row, wanted));
  const checks = (after.gradingResult.componentResults || []);
  const now = opinion(after);
  const brief = {
    ...cell, pass: after.success, score: after.score, failureReason: after.failureReason, error: after.success ? null : after.error,
    passed: checks.filter((part) => part.pass).length, assertions: checks.length, rated: now.pass, comment: after.gradingResult.comment || null,
  };
  return { row: after, cell: brief };
}

const thumb = (pass) => (before) => ({ pass: before.pass === pass ? null : pass, score: null });

/** What the keys do, here and in the table. */
export const KEYS = {
  "+": thumb(true),
  "-": thumb(false),
  "*": (before) => ({ highlighted: !before.highlighted }),
};
