// What a person thinks of an answer: a part of its verdict, which then decides it.

import { api } from "./api.js";
import { BRIEF, keyOf, number, runOf } from "./table.js";

const isHuman = (part) => part.assertion && part.assertion.type === "human";

/** What a person said of a row: `pass` and `score` if it was judged, the comment and whether it is highlighted. */
export function opinion(row) {
  const verdict = row.gradingResult || {};
  const human = (verdict.componentResults || []).findLast(isHuman);
  const comment = verdict.comment || "";
  return {
    pass: human ? human.pass === true : null,
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

/** What is seen of an answer and its rating, where a row or a cell is shown. */
export function seen(shown) {
  const isCell = "rated" in shown;
  const { pass, highlighted, comment } = isCell ? opinion({ gradingResult: { comment: shown.comment } }) : opinion(shown);
  return { id: shown.id, pass: isCell ? shown.rated : pass, score: number(shown.score || 0, 4), highlighted, comment, isCell };
}

/** Whether what was seen is what a row says now. A cell has only the beginning of a comment. */
function isSame(was, now) {
  const isSaid = was.comment === now.comment || (was.isCell && was.comment.length > BRIEF / 2 && now.comment.startsWith(was.comment));
  // A row without an id has its place as the id of its cell.
  const isAnswer = was.id === now.id || (was.isCell && !now.id);
  return isAnswer && isSaid && was.pass === now.pass && was.score === now.score && was.highlighted === now.highlighted;
}

/** What is being read and stored of each run: one after the other, so that each change begins with what the one before left. */
const queues = new Map();
/** What each answer has said since somebody else changed it last, up to what was stored here. */
const own = new Map();

function queue(run, does) {
  const done = (queues.get(run) || Promise.resolve()).then(does);
  queues.set(run, done.catch(() => {}));
  return done;
}

/** The row of a cell, once all changes before are stored. */
export function reread(cell) {
  const [run, key] = [runOf(cell), keyOf(cell)];
  return queue(run, () => api.row(run, key));
}

/** Changes what a person who has seen `was` thinks of a cell's row; gives the row and the cell anew. It is refused when somebody else has changed it since. */
export function rate(cell, change, was = seen(cell)) {
  const [run, key] = [runOf(cell), keyOf(cell)];
  return queue(run, async () => {
    const row = await api.row(run, key);
    const [answer, now] = [`${run} ${key}`, seen(row)];
    let said = own.get(answer) || [];
    // Several keys may have been pressed before the first of them was stored and shown.
    const isOwn = said.length > 0 && isSame(said.at(-1), now) && said.some((one) => isSame(was, one));
    if (!isOwn && !isSame(was, now)) throw new Error("Somebody else has rated this answer meanwhile. Nothing was stored: look at it again.");
    if (!isOwn) said = [now];
    const before = opinion(row);
    const wanted = { ...before, ...(typeof change === "function" ? change(before) : change) };
    const after = await api.rate(run, key, verdict(row, wanted), row);
    own.set(answer, [...said, seen(after)].slice(-9));
    return { row: after, cell: anew(cell, after) };
  });
}

/** The cell of a row that was rated. */
export function anew(cell, row) {
  const { comment, componentResults: checks } = row.gradingResult || {};
  return {
    ...cell, pass: row.success, score: row.score, failureReason: row.failureReason, error: row.success ? null : row.error,
    passed: (checks || []).filter((part) => part.pass).length, assertions: (checks || []).length, rated: opinion(row).pass, comment: comment || null,
  };
}

const thumb = (pass) => (before) => ({ pass: before.pass === pass ? null : pass, score: null });

/** What the keys do, here and in the table. */
export const KEYS = {
  "+": thumb(true),
  "-": thumb(false),
  "*": (before) => ({ highlighted: !before.highlighted }),
};
