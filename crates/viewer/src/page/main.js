// Brings the parts together: what is in the address is read from the server and shown.

import { again } from "./again.js";
import { api, listen } from "./api.js";
import * as cell from "./cell.js";
import * as charts from "./charts.js";
import { ask, button, byId, confirmed, dialog, fill, h, say } from "./dom.js";
import * as filters from "./filters.js";
import { place } from "./place.js";
import { KEYS, rate } from "./rating.js";
import { choose, when } from "./runs.js";
import { prefer, read, state, tableQuery, taste, write } from "./state.js";
import * as table from "./table.js";

let page = null;
/** What charts need beside the page: the scores of all rows, and the columns of all runs. */
let scores = { id: "", counts: [], history: [] };
let turns = 0;
/** Requests for the run that is shown. */
let reading = null;
/** Whether the run that is shown is being deleted: nothing more of it is read then. */
let deleting = false;

/** Reads the page again, shows it, and opens the row that the address names. */
function load() {
  const found = renew();
  // Every time: if results change meanwhile, the first one shows nothing.
  found.then((shown) => shown && openNamed());
  wait(found);
  return found;
}

function wait(request) {
  reading = Promise.allSettled([reading, request]).then(() => {});
}

async function renew() {
  const turn = ++turns;
  document.body.classList.add("loading");
  try {
    if (!state.id) await newest();
    if (!state.id) return nothing();
    const found = await api.page(state.id, tableQuery(table.BRIEF));
    // Another page may have been asked for meanwhile.
    if (turn !== turns) return null;
    page = found;
    complain("");
    draw();
    cell.renew(page);
    return page;
  } catch (error) {
    if (turn === turns) complain(error.message, error.status);
    return null;
  } finally {
    if (turn === turns) document.body.classList.remove("loading");
  }
}

async function newest() {
  const runs = await api.runs();
  if (runs.length) {
    state.id = runs[0].evalId;
    write(false);
  }
}

function nothing() {
  fill(byId("name"), "No run is stored yet");
  fill(byId("table"), h("p", { class: "empty" }, "Run ", h("code", { text: "sandcove eval" }), " where a promptfooconfig.yaml is; its results appear here."));
  return null;
}

function complain(text, status) {
  const message = byId("message");
  message.hidden = !text;
  fill(message, text, status === 404 && [" ", button("Choose a run", "Choose another run", chooseRun)]);
  if (text && status === 404) byId("table").textContent = "";
}

function draw() {
  const name = page.description || page.id;
  place.title(name);
  fill(byId("name"), name);
  const { successes = 0, failures = 0, errors = 0 } = page.stats || {};
  const all = successes + failures + errors;
  // Sums are stored when a run ends.
  const sums = all ? [h("b", { text: `${table.number((successes * 100) / all, 1)}%` }), ` passed · ${table.number(successes)} passed · ${table.number(failures)} failed · ${table.number(errors)} errors`]
    : `not finished: ${table.number(page.totalCount)} tests so far`;
  fill(byId("about"), sums, " · ", h("span", { title: page.id, text: when(Date.parse(page.createdAt)) }),
    page.author && ` · ${page.author}`, Object.entries((page.config || {}).tags || {}).map(([name, value]) => h("span", { class: "about-tag", text: `${name}: ${value}` })));
  drawActions();
  const shown = `${state.id} ${state.beside.length > 0}`;
  if (byId("controls").dataset.run !== shown) {
    byId("controls").dataset.run = shown;
    filters.show(byId("controls"), () => page, changed, draw);
    filters.conditions(byId("filters"), page, changed);
  }
  filters.count(page);
  filters.pager(byId("pager"), page, go);
  drawTable();
  drawCharts();
}

/** Made anew only for another run or other comparisons: a button that is being pressed has to stay, and so has an open menu. */
function drawActions() {
  const actions = byId("actions");
  const made = JSON.stringify([state.id, state.beside]);
  if (actions.dataset.made === made) return;
  actions.dataset.made = made;
  fill(actions,
    state.beside.map((id) => h("button", { type: "button", class: "beside-chip", title: `compared with ${id}; removes it`, onclick: () => compareWithout(id) }, `vs ${id} ✕`)),
    page.isRedteam && h("a", { class: "report", href: place.report(state.id), target: place.target, text: "Report" }),
    button("Compare", "Show another run's answers to the same tests beside these", compare),
    page.isRepeatable && button("Run again", "Run this suite again, as it is now", () => again(page, openRun)),
    exports(),
    api.can.change && [button("Rename", "Give this run another name", rename), button("Copy", "Make a copy of this run", copy), button("Delete", "Delete this run", forget)],
    button("?", "Keys (?)", help));
}

function drawTable() {
  const places = table.focused();
  table.show(byId("table"), page, (...at) => cell.open(page, at, turnPage));
  const again = places && document.querySelector(`#table [data-place="${places.join(".")}"]`);
  if (again && !cell.isOpen()) again.focus({ preventScroll: true });
}

function drawCharts() {
  const container = byId("charts");
  if (!taste.charts) {
    container.hidden = true;
    return;
  }
  const show = () => charts.show(container, {
    prompts: page.table.head.prompts, total: page.totalCount, id: state.id, open: openRun,
    scores: scores.id === state.id ? scores.counts : null, history: scores.id === state.id ? scores.history : null,
  });
  show();
  if (scores.id === state.id) return;
  const id = state.id;
  // Every score is read for this, so the table does not wait for it.
  scores = { id, counts: [], history: [] };
  const counted = Promise.all([api.scores(id), api.history()]).then(([counts, history]) => {
    scores = { id, counts, history };
    if (state.id === id && taste.charts) show();
  }, () => {});
  wait(counted);
}

/** Other rows are wanted. */
function changed(walkable = true) {
  state.page = 0;
  write(walkable);
  load();
}

function go(to) {
  state.page = Math.max(0, to);
  write();
  return load().then((found) => {
    scrollTo({ top: 0 });
    return found;
  });
}

/** The page before or after this one, if there is one. */
function turnPage(step) {
  const to = state.page + step;
  return to < 0 || to * state.size >= page.filteredCount ? null : go(to);
}

function openRun(id) {
  Object.assign(state, { id, mode: "all", search: "", filters: [], beside: [], page: 0, cell: "" });
  byId("controls").dataset.run = "";
  write();
  return load();
}

async function chooseRun() {
  if (document.querySelector("dialog")) return;
  const id = await choose("Choose a run", state.id);
  if (id && id !== state.id) openRun(id);
}

async function compare() {
  const id = await choose("Compare with another run", state.id, true);
  if (!id || state.beside.includes(id)) return;
  state.beside.push(id);
  write();
  load();
}

function compareWithout(id) {
  state.beside = state.beside.filter((other) => other !== id);
  if (!state.beside.length && state.mode === "newly-failing") state.mode = "all";
  write();
  load();
}

async function rename() {
  const name = await ask("Name of this run", page.description || "", "Rename");
  if (name !== null) await does(() => api.rename(state.id, name).then(load), "Renamed.");
}

async function copy() {
  await does(() => api.copy(state.id).then((made) => openRun(made.id)), "This is the copy.");
}

async function forget() {
  const name = page.description || page.id;
  const id = state.id;
  if (!(await confirmed("Delete this run?", `${name} and its ${table.number(page.totalCount)} tests cannot be brought back.`, "Delete"))) return;
  if (deleting) return;
  await does(async () => {
    deleting = true;
    try {
      for (let last = null; last !== reading;) await (last = reading);
      await api.forget(id);
      if (state.id === id) state.id = "";
    } finally {
      deleting = false;
      // Changes that came meanwhile were not looked at.
      scores = { id: "", counts: [], history: [] };
      await (state.id ? load() : openRun(""));
    }
  }, "Deleted.");
}

async function does(what, done) {
  try {
    await what();
    say(done);
  } catch (error) {
    say(error.message);
  }
}

function exports() {
  const names = { csv: "Table (CSV)", json: "Results (JSON)", config: "Configuration (YAML)", failed: "Failed tests only (YAML)" };
  const onclick = api.saves && ((event) => api.saves(state.id, event));
  const file = (format) => h("a", { href: api.file(state.id, format), download: format === "json" ? `${state.id}.json` : "", text: names[format], onclick });
  return h("details", { class: "drop" }, h("summary", { text: "Export" }), h("div", { class: "menu" }, api.can.exports.map(file)));
}

function help() {
  const keys = [
    ["Ctrl K", "choose a run"], ["/", "search"], ["arrows, or h j k l", "move in the table"], ["Enter", "open a row"], ["n, p", "next and previous test"],
    ["[ and ]", "columns of the test"],
    ...(api.can.rate ? [["+ and −", "passed, failed; again to take it back"], ["*", "highlight"], ["c", "comment"]] : []), ["Esc", "close"],
  ];
  dialog("Keys", { class: "small" }, h("h2", { text: "Keys" }), h("dl", { class: "keys" }, keys.map(([key, does]) => [h("dt", {}, h("kbd", { text: key })), h("dd", { text: does })])),
    h("p", { class: "buttons" }, h("button", { type: "button", text: "Close", onclick: (event) => event.target.closest("dialog").close() })));
}

/** Opens the row that the address names. */
async function openNamed() {
  if (!state.cell || !page || cell.isOpen()) return;
  const [test, column] = state.cell.split(".").map(Number);
  const line = page.table.body.findIndex((other) => other.testIdx === test);
  if (line >= 0 && page.table.body[line].outputs[column]) {
    cell.open(page, [line, column], turnPage);
  } else {
    // It must not open on a page that is turned to later.
    state.cell = "";
  }
}

async function rateFocused(places, change) {
  const before = page.table.body[places[0]].outputs[places[1]];
  await does(async () => {
    const { cell: after } = await rate(before, change).catch((error) => {
      // What others say is shown.
      load();
      throw error;
    });
    cell.put(after);
  }, "Saved.");
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    chooseRun();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog") || event.target.matches("input, textarea, select")) return;
  const places = table.focused();
  if (event.key === "/" && byId("search")) {
    event.preventDefault();
    byId("search").select();
  } else if (event.key === "?") help();
  else if (!api.can.rate) return;
  else if (places && KEYS[event.key]) {
    event.preventDefault();
    rateFocused(places, KEYS[event.key]);
  } else if (places && event.key === "c") {
    event.preventDefault();
    cell.open(page, places, turnPage).then(() => byId("comment") && byId("comment").focus());
  }
});

// A menu closes when something else is clicked.
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.drop[open]")) if (!open.contains(event.target)) open.open = false;
});

place.watch(() => {
  cell.close();
  read();
  byId("controls").dataset.run = "";
  load();
});

byId("choose").addEventListener("click", chooseRun);
prefer({});
read();
load();
listen(() => {
  if (deleting) return;
  scores = { id: "", counts: [], history: [] };
  load();
});
