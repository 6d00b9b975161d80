// The table: variables, then one column for each provider and prompt. It is a grid that arrow keys walk through.

import { brief } from "./code.js";
import { fill, h } from "./dom.js";
import { state, taste } from "./state.js";

/** Characters of a text that the table asks for. */
export const BRIEF = 600;

export const word = (cell) => (cell.pass ? "PASS" : cell.failureReason === 2 ? "ERROR" : "FAIL");

/** The key under which the server knows a cell's row, and which run it is of. */
export const keyOf = (cell) => `${cell.testIdx}.${cell.promptIdx}`;
export const runOf = (cell) => cell.evalId || state.id;

export const number = (value, digits = 2) =>
  typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: digits, useGrouping: true }) : "";

export const duration = (ms) => (ms >= 10000 ? `${number(ms / 1000, 1)} s` : `${number(ms, ms < 10 ? 1 : 0)} ms`);

/** The name that a column is hidden under. */
export const columnName = (prompt) => `${prompt.evalId ? "" : "·"}[${prompt.provider}] ${prompt.label}`;

const isHidden = (name) => (taste.hidden[state.id] || []).includes(name);

/** The percentage of a column's rows that passed; null without rows. */
function passed(metrics) {
  const all = metrics.testPassCount + metrics.testFailCount + metrics.testErrorCount;
  return all ? (metrics.testPassCount * 100) / all : null;
}

/** The share of a column that passed, as text and as a bar. */
function rate(metrics) {
  const all = metrics.testPassCount + metrics.testFailCount + metrics.testErrorCount;
  const percent = passed(metrics);
  if (percent === null) return null;
  return h("div", { class: "rate" },
    h("span", { class: "bar", "aria-hidden": "true" }, h("span", { class: "fill", vars: { "--part": `${percent}%` } })),
    h("span", {}, h("b", { text: `${number(percent, 1)}%` }), ` passed, ${number(metrics.testPassCount)} of ${number(all)}`));
}

function average(metrics) {
  const all = metrics.testPassCount + metrics.testFailCount + metrics.testErrorCount;
  if (!all) return null;
  const parts = [`score ${number(metrics.score / all)}`];
  if (metrics.totalLatencyMs) parts.push(duration(metrics.totalLatencyMs / all));
  if (metrics.cost) parts.push(`$${number(metrics.cost, 4)}`);
  const tokens = metrics.tokenUsage && metrics.tokenUsage.total;
  if (tokens) parts.push(`${number(tokens)} tokens`);
  return h("div", { class: "faint", text: parts.join(" · ") });
}

function named(metrics) {
  const names = Object.entries(metrics.namedScores || {});
  if (!names.length) return null;
  const one = ([name, sum]) => {
    const count = (metrics.namedScoresCount || {})[name];
    return h("span", { class: "metric", title: `${name}: ${number(sum, 4)} in all` }, `${name} `, h("b", { text: number(count ? sum / count : sum) }));
  };
  return h("div", { class: "metrics" }, names.slice(0, 12).map(one));
}

/** The places of the columns of other runs that are compared with a column: those at the same place in their runs. */
function partners(prompts, at) {
  if (prompts[at].evalId) return [];
  const runs = Map.groupBy(prompts.map((prompt, place) => ({ run: prompt.evalId, place })).filter(({ run }) => run), ({ run }) => run);
  return [...runs.values()].map((columns) => columns[at]).filter(Boolean).map(({ place }) => place);
}

/** How much more or less of a column passed than in the runs beside it. */
function deltas(prompts, at) {
  return partners(prompts, at).map((place) => {
    const [now, before] = [passed(prompts[at].metrics), passed(prompts[place].metrics)];
    if (now === null || before === null) return null;
    const points = now - before;
    const sign = points > 0 ? "+" : points < 0 ? "−" : "±";
    return h("div", { class: `delta ${points < 0 ? "worse" : points > 0 ? "better" : ""}`, text: `${sign}${number(Math.abs(points), 1)} points vs ${prompts[place].evalId}` });
  });
}

/** What has changed for a cell against the runs beside it. */
function news(prompts, outputs, at) {
  const cell = outputs[at];
  const others = partners(prompts, at).map((place) => outputs[place]).filter(Boolean);
  if (others.some((other) => other.pass !== cell.pass)) return cell.pass ? "newly passing" : "newly failing";
  return "";
}

function columnHead(prompt, metrics, compared) {
  return h("div", { class: "head output", role: "columnheader" },
    h("div", { class: "provider", text: prompt.provider }),
    h("div", { class: "label", title: prompt.raw, text: prompt.label }),
    metrics && [rate(metrics), compared, taste.details && average(metrics), named(metrics)]);
}

function tags(cell) {
  const highlighted = (cell.comment || "").startsWith("!highlight");
  return [
    cell.rated === true && h("span", { class: "tag", title: "rated: passed", text: "✓ rated" }),
    cell.rated === false && h("span", { class: "tag", title: "rated: failed", text: "✗ rated" }),
    highlighted && h("span", { class: "tag", title: "highlighted", text: "★" }),
    cell.comment && !highlighted && h("span", { class: "tag", title: cell.comment, text: "✎" }),
  ];
}

/** What is in a cell. */
export function cellContent(cell) {
  const verdict = word(cell);
  const details = [`score ${number(cell.score)}`];
  if (cell.assertions) details.push(`${cell.passed}/${cell.assertions} checks`);
  if (cell.latencyMs) details.push(duration(cell.latencyMs));
  if (cell.cost) details.push(`$${number(cell.cost, 5)}`);
  const tokens = cell.tokenUsage && cell.tokenUsage.total;
  if (tokens) details.push(`${number(tokens)} tokens`);
  return [
    h("div", { class: "verdict" }, h("span", { class: `chip ${verdict}`, text: verdict }),
      cell.news && h("span", { class: `chip ${verdict}`, text: cell.news }), tags(cell),
      taste.details && h("span", { class: "faint", text: details.join(" · ") })),
    cell.error && cell.error !== cell.text && h("div", { class: "why", text: cell.error }),
    h("div", { class: "text" }, brief(cell.text), cell.cut && "…"),
  ];
}

/** Shows a page of the table. `open` is called with the places of a cell that is opened. */
export function show(container, page, open) {
  const { head, body } = page.table;
  const vars = head.vars.map((name, at) => [name, at]).filter(([name]) => !isHidden(name));
  const outputs = head.prompts.map((prompt, at) => [prompt, at]).filter(([prompt]) => !isHidden(columnName(prompt)));
  const described = body.some((line) => line.description);
  const columns = ["3.2rem", described && "minmax(var(--var), 0.6fr)", ...vars.map(() => "minmax(var(--var), 0.6fr)"), ...outputs.map(() => "minmax(var(--out), 1.4fr)")];
  const sums = page.filteredMetrics;
  const heads = h("div", { class: "line heads", role: "row" },
    h("div", { class: "head", role: "columnheader", text: "#" }),
    described && h("div", { class: "head", role: "columnheader", text: "Description" }),
    vars.map(([name]) => h("div", { class: "head", role: "columnheader", text: name })),
    outputs.map(([prompt, at]) => columnHead(prompt, (sums && sums[at]) || prompt.metrics, !sums && deltas(head.prompts, at))));
  const line = (test, at) => h("div", { class: "line", role: "row", "aria-rowindex": state.page * state.size + at + 2 },
    h("div", { class: "cell index", role: "rowheader", text: test.testIdx + 1 }),
    described && h("div", { class: "cell", role: "gridcell", tabindex: -1 }, h("div", { class: "text", text: test.description || "" })),
    vars.map(([, place]) => h("div", { class: "cell", role: "gridcell", tabindex: -1 }, h("div", { class: "text" }, brief(test.vars[place])))),
    outputs.map(([, place]) => {
      const cell = test.outputs[place];
      if (cell) cell.news = news(head.prompts, test.outputs, place);
      if (!cell) return h("div", { class: "cell none", role: "gridcell", tabindex: -1, "aria-label": "no row" });
      return h("div", { class: `cell output ${word(cell)}`, role: "gridcell", tabindex: -1, "data-place": `${at}.${place}`, "aria-haspopup": "dialog" }, cellContent(cell));
    }));
  const layout = JSON.stringify([state.id, state.page, columns, outputs.map(([, at]) => at), taste.height, taste.details, body.length]);
  const texts = body.map((test) => JSON.stringify(test));
  const before = container.firstElementChild;
  if (before && before.shown && before.shown.layout === layout) {
    // The same lines as before: only those that changed are made anew, so that nobody loses their place.
    texts.forEach((text, at) => text !== before.shown.texts[at] && before.children[at + 1].replaceWith(line(body[at], at)));
    before.firstElementChild.replaceWith(heads);
    before.shown.texts = texts;
    before.shown.open = open;
    return;
  }
  const grid = h("div", {
    class: `grid ${taste.height}`, role: "grid", "aria-label": "Results", "aria-rowcount": page.filteredCount + 1,
    vars: { "--columns": columns.filter(Boolean).join(" ") },
    onclick: (event) => {
      // Whoever selects text does not want to open anything.
      if (String(getSelection())) return;
      const cell = event.target.closest("[data-place]");
      if (cell) grid.shown.open(...cell.dataset.place.split(".").map(Number));
    },
    onkeydown: (event) => walk(event, grid.shown.open),
    onfocusin: (event) => makeCurrent(grid, event.target),
  }, heads, body.map(line));
  grid.shown = { layout, texts, open };
  fill(container, body.length ? grid : h("p", { class: "empty", text: "No test answers that." }));
  const first = grid.querySelector(".cell.output") || grid.querySelector("[role=gridcell]");
  if (first) first.tabIndex = 0;
}

function makeCurrent(grid, cell) {
  if (cell.getAttribute("role") !== "gridcell") return;
  for (const other of grid.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
  cell.tabIndex = 0;
}

/** Arrow keys, and j and k, move between cells; Enter opens one. */
function walk(event, open) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const cell = event.target.closest("[role=gridcell]");
  if (!cell) return;
  const line = cell.parentElement;
  const at = [...line.children].indexOf(cell);
  const move = (to) => {
    if (!to || to.getAttribute("role") !== "gridcell") return;
    event.preventDefault();
    to.focus();
    to.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const lineAt = (other) => other && !other.classList.contains("heads") && move(other.children[at]);
  switch (event.key) {
    case "ArrowDown": case "j": return lineAt(line.nextElementSibling);
    case "ArrowUp": case "k": return lineAt(line.previousElementSibling);
    case "ArrowRight": case "l": return move(cell.nextElementSibling);
    case "ArrowLeft": case "h": return move(cell.previousElementSibling);
    case "Home": return move(line.children[1]);
    case "End": return move(line.lastElementChild);
    case "Enter": case " ":
      if (cell.dataset.place) {
        event.preventDefault();
        open(...cell.dataset.place.split(".").map(Number));
      }
  }
}

/** The cell of the table that has the focus, as its places. */
export function focused() {
  const cell = document.activeElement && document.activeElement.closest("#table [data-place]");
  return cell ? cell.dataset.place.split(".").map(Number) : null;
}

/** Shows a cell anew, after it was rated. */
export function refresh(places, cell) {
  const element = document.querySelector(`#table [data-place="${places.join(".")}"]`);
  if (!element) return;
  element.className = `cell output ${word(cell)}`;
  fill(element, cellContent(cell));
  // It may be again what it was when the line was made.
  element.closest("[role=grid]").shown.texts[places[0]] = "";
}
