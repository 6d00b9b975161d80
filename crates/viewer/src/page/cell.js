// One row in full: its answer, why it passed or not, what was asked, and what a person thinks of it.

import { api } from "./api.js";
import { answer, block, plain } from "./code.js";
import { beside } from "./diff.js";
import { button, dialog, fill, h, say } from "./dom.js";
import { place } from "./place.js";
import { KEYS, anew, opinion, rate, reread, seen } from "./rating.js";
import { state, write } from "./state.js";
import { columnName, duration, keyOf, number, refresh, runOf, word } from "./table.js";
import { checks, ran } from "./verdict.js";

let view = null;
/** The page of the table. */
let current = null;

/** Whether a row is open. */
export const isOpen = () => view !== null;

/** Opens the cell at `places` (line and column) of a page. `turn` shows the page before or after this one. */
export function open(page, places, turn) {
  if (view) return show(page, places, turn);
  const box = dialog("Row", { class: "row", onkeydown: keys });
  view = { box };
  box.addEventListener("close", () => {
    const last = view && view.places;
    view = null;
    state.cell = "";
    write(false);
    // The cell that was looked at last, which may be another than the one that was opened.
    const cell = last && document.querySelector(`#table [data-place="${last.join(".")}"]`);
    if (cell) cell.focus();
  });
  return show(page, places, turn);
}

export const close = () => view && view.box.close();

async function show(page, places, turn) {
  const cell = page.table.body[places[0]].outputs[places[1]];
  Object.assign(view, { page, places, turn, cell, row: null });
  state.cell = `${page.table.body[places[0]].testIdx}.${places[1]}`;
  write(false);
  try {
    const row = await api.row(runOf(cell), keyOf(cell));
    // Somebody may have gone on meanwhile.
    if (view && view.cell.id === cell.id) draw(row);
  } catch (error) {
    if (view) fill(view.box, h("p", { class: "why", text: error.message }), button("Close", "Close", close));
  }
}

function draw(row) {
  const { box, page, places } = view;
  view.row = row;
  const prompts = page.table.head.prompts;
  const test = page.table.body[places[0]];
  const column = h("select", { "aria-label": "Column", onchange: (event) => go(0, Number(event.target.value) - view.places[1]) },
    prompts.map((prompt, at) => h("option", { value: String(at), disabled: !test.outputs[at], selected: at === places[1], text: columnName(prompt).replace(/^·/, "") })));
  const body = h("div", { class: "row-body" },
    h("div", { class: "row-main" }, outputPart(row), promptPart(row)),
    h("div", { class: "row-side" }, ratingPart(row), checks(row), ran(row), varsPart(row), factsPart(row)));
  fill(box,
    h("header", {},
      title(row),
      column,
      h("div", { class: "buttons" },
        button("←", "Previous test (p)", () => go(-1, 0)), button("→", "Next test (n)", () => go(1, 0)),
        button("Link", "Copy a link to this row", () => navigator.clipboard.writeText(place.href()).then(() => say("The link was copied."), () => say("The browser does not allow copying."))),
        button("✕", "Close (Esc)", close))),
    row.description && h("p", { class: "description", text: row.description }),
    body);
  if (!box.contains(document.activeElement) || document.activeElement === document.body) box.focus();
}

/** To another test or column; over the edge of the page to the next page. */
async function go(lines, columns) {
  if (!view) return;
  const body = view.page.table.body;
  let [line, column] = view.places;
  const width = view.page.table.head.prompts.length;
  do {
    line += lines;
    column += columns;
  } while (body[line] && column >= 0 && column < width && !body[line].outputs[column] && lines + columns);
  if (column < 0 || column >= width) return;
  if (body[line]) {
    show(view.page, [line, column], view.turn);
    return;
  }
  const { turn } = view;
  const page = await turn(lines);
  if (!page || !view) return say(lines > 0 ? "That was the last test." : "That was the first test.");
  const at = lines > 0 ? 0 : page.table.body.length - 1;
  if (page.table.body[at] && page.table.body[at].outputs[column]) show(page, [at, column], turn);
}

/** The page was read again: goes on with the same row in it, as it is now. */
export function renew(page) {
  current = page;
  if (!view) return;
  const answer = answerOf(view.cell);
  const places = find(page, (cell) => answerOf(cell) === answer);
  if (places) Object.assign(view, { page, places, cell: page.table.body[places[0]].outputs[places[1]] });
  if (view.row) again().catch(() => {});
}

const answerOf = (cell) => `${runOf(cell)} ${keyOf(cell)}`;

/** The places of the cell for which something holds. */
function find(page, holds) {
  for (const [line, test] of page.table.body.entries()) {
    const column = test.outputs.findIndex((cell) => cell && holds(cell));
    if (column >= 0) return [line, column];
  }
  return null;
}

/** Puts a cell that was rated into the table, wherever it is now. */
export function put(cell) {
  const places = find(current, ({ id }) => id === cell.id);
  if (places) {
    current.table.body[places[0]].outputs[places[1]] = cell;
    refresh(places, cell);
  }
  if (view && view.cell.id === cell.id) view.cell = view.page.table.body[view.places[0]].outputs[view.places[1]] = cell;
}

/** Reads the row again and shows what it is now, after a comment that was `sent` was refused. */
async function again(sent) {
  const answer = answerOf(view.cell);
  const row = await reread(view.cell);
  if (!view || !view.row || answerOf(view.cell) !== answer) return;
  if (sent === undefined && JSON.stringify(row) === JSON.stringify(view.row)) return;
  put(anew(view.cell, row));
  // The run may have been made or shared again.
  if (view.row.id === row.id) update(row, sent);
  else draw(row);
}

/** Shows another rating of the row. Whoever is typing goes on typing: what they type in stays. */
function update(row, sent, isStored) {
  view.row = row;
  view.box.querySelector("h2").replaceWith(title(row));
  view.box.querySelector(".checks-part").replaceWith(checks(row));
  if (view.rated) view.rated(row, sent, isStored);
}

function keys(event) {
  const typing = event.target.matches("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  const does = {
    n: () => go(1, 0), p: () => go(-1, 0), j: () => go(1, 0), k: () => go(-1, 0), "]": () => go(0, 1), "[": () => go(0, -1),
    ...(api.can.rate ? { c: () => view.box.querySelector("#comment").focus() } : {}),
  }[event.key];
  const change = api.can.rate && KEYS[event.key];
  if (!does && !change) return;
  event.preventDefault();
  if (change) changeTo(change);
  else does();
}

/** Stores a change of the rating that is shown. */
async function changeTo(change) {
  const { cell } = view;
  const answer = answerOf(cell);
  const isShown = () => view && view.row && answerOf(view.cell) === answer;
  try {
    const { row, cell: after } = await rate(cell, change, view.row ? view.seen : seen(cell));
    say("Saved.");
    put(after);
    if (isShown()) update(row, change.comment, true);
  } catch (error) {
    say(error.message);
    if (isShown()) await again(change.comment).catch(() => {});
  }
}

function title(row) {
  return h("h2", {}, `Test ${view.page.table.body[view.places[0]].testIdx + 1} `, h("span", { class: `chip ${word(view.cell)}`, text: word(view.cell) }),
    h("span", { class: "faint", text: ` score ${number(row.score, 4)}` }));
}

function ratingPart(row) {
  if (!api.can.rate) return ratedPart(opinion(row));
  const press = (sign, label, key) => button(sign, `${label} (${key})`, () => changeTo(KEYS[key]), { class: "press" });
  const [pass, fail, star] = [press("✓ Pass", "Passed", "+"), press("✗ Fail", "Failed", "-"), press("★", "Highlight", "*")];
  const score = h("input", {
    type: "number", min: 0, max: 1, step: 0.05, id: "score",
    onchange: (event) => {
      const given = parseFloat(event.target.value);
      const value = Math.max(0, Math.min(1, given));
      changeTo(Number.isNaN(given) ? { pass: null, score: null } : (before) => ({ score: value, pass: before.pass ?? value >= 0.5 }));
    },
  });
  const answer = answerOf(view.cell);
  // The comment that the field began with.
  let begun = "";
  const comment = h("textarea", {
    id: "comment", rows: 2, placeholder: "Comment (c)", "aria-label": "Comment",
    onblur: () => comment.value !== begun && view && answerOf(view.cell) === answer && changeTo({ comment: comment.value }),
  });
  // `sent` is a comment that was stored, or was not because there is another one: then the field has both.
  view.rated = (changed, sent, isStored) => {
    const now = opinion(changed);
    [[pass, now.pass === true], [fail, now.pass === false], [star, now.highlighted]].forEach(([sign, on]) => sign.setAttribute("aria-pressed", String(on)));
    score.placeholder = number(changed.score);
    if (document.activeElement !== score) score.value = now.score === null ? "" : String(now.score);
    const isOther = now.comment !== begun;
    if (comment.value === (isStored ? sent : begun)) comment.value = now.comment;
    else if (sent !== undefined && !isStored && isOther && comment.value !== now.comment) comment.value = [now.comment, comment.value].filter(Boolean).join("\n");
    else if (sent === undefined && isOther) {
      // Whoever is typing has not seen it.
      view.seen = { ...seen(changed), comment: begun };
      return;
    }
    begun = now.comment;
    view.seen = seen(changed);
  };
  view.rated(row);
  return h("section", { class: "rating", "aria-label": "Rating" }, h("div", { class: "rating-line" }, pass, fail, star, h("label", {}, "Score ", score)), comment);
}

/** What a person said of a row, where nothing more can be said. */
function ratedPart({ pass, highlighted, comment }) {
  const said = [pass !== null && `rated: ${pass ? "passed" : "failed"}`, highlighted && "highlighted", comment].filter(Boolean);
  return said.length > 0 && h("section", { class: "rating", "aria-label": "Rating" }, said.map((text) => h("p", { text })));
}

function outputPart(row) {
  const { page, places, cell } = view;
  const output = row.response ? row.response.output : undefined;
  const shown = h("div", { id: "output" }, answer(output));
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) || "");
  const prompts = page.table.head.prompts;
  const test = page.table.body[places[0]];
  const others = prompts.map((prompt, at) => [prompt, at]).filter(([, at]) => at !== places[1] && test.outputs[at]);
  const against = async (at) => {
    if (at === "") return fill(shown, answer(output));
    const other = test.outputs[at];
    const found = await api.row(runOf(other), keyOf(other));
    if (!view || view.cell.id !== cell.id) return undefined;
    const name = (prompt) => `[${prompt.provider}] ${prompt.label}`;
    return fill(shown, beside(text(output), text(found.response && found.response.output), [name(prompts[places[1]]), name(prompts[at])]));
  };
  return h("section", {}, h("div", { class: "section-head" }, h("h3", { text: "Answer" }),
    others.length > 0 && h("label", {}, "beside ", h("select", { id: "beside", onchange: (event) => against(event.target.value) },
      h("option", { value: "", text: "nothing" }), others.map(([prompt, at]) => h("option", { value: String(at), text: columnName(prompt).replace(/^·/, "") }))))), shown);
}

function promptPart(row) {
  const raw = (row.prompt && row.prompt.raw) || "";
  return h("section", {}, h("h3", { text: "Prompt" }), /^\s*[[{]/.test(raw) ? answer(raw) : plain(raw));
}

function varsPart(row) {
  const vars = Object.entries(row.vars || {});
  if (!vars.length) return null;
  return h("section", {}, h("h3", { text: "Variables" }), h("dl", { class: "vars" }, vars.map(([name, value]) => [
    h("dt", { text: name }), h("dd", {}, typeof value === "string" ? plain(value) : block(JSON.stringify(value, null, 2), "json"))])));
}

function factsPart(row) {
  const tokens = row.tokenUsage || {};
  const facts = [
    ["provider", row.provider && (row.provider.label ? `${row.provider.label} (${row.provider.id})` : row.provider.id)],
    ["latency", row.latencyMs ? duration(row.latencyMs) : ""], ["cost", row.cost ? `$${number(row.cost, 6)}` : ""],
    ["tokens", tokens.total ? `${number(tokens.total)} (prompt ${number(tokens.prompt || 0)}, answer ${number(tokens.completion || 0)})` : ""],
    ["speed", tokens.completion && row.latencyMs ? `${number((tokens.completion * 1000) / row.latencyMs, 1)} tokens/s` : ""],
    ["finish reason", row.response && row.response.finishReason], ["row", row.id],
  ].filter(([, value]) => value);
  const beside = { ...row.metadata };
  delete beside.execution;
  const raw = (name, value) => value && Object.keys(value).length > 0 && h("details", {}, h("summary", { text: name }), block(JSON.stringify(value, null, 2), "json"));
  return h("section", {}, h("h3", { text: "Details" }), h("dl", { class: "vars" }, facts.map(([name, value]) => [h("dt", { text: name }), h("dd", { text: value })])),
    raw("Metadata", beside), raw("Named scores", row.namedScores), raw("Response", row.response), raw("Test", row.testCase));
}
