// Three charts: how much of each column passed, how the scores spread, and how much passed in the runs of the same tests before.

import { fill, h } from "./dom.js";
import { number } from "./table.js";

/** Width of a chart in its own units; on the page it is as wide as there is room. */
const WIDTH = 320;

/** A few of these can be told apart; there are as many classes in the styles. */
const COLOURS = 6;

function bars(prompts) {
  const bar = (prompt, at) => {
    const sums = prompt.metrics;
    const counts = [["passed", sums.testPassCount], ["failed", sums.testFailCount], ["errors", sums.testErrorCount]];
    const all = counts.reduce((sum, [, count]) => sum + count, 0) || 1;
    const told = counts.filter(([, count]) => count).map(([name, count]) => `${number(count)} ${name}`).join(", ");
    let x = 0;
    return h("div", { class: "column" },
      h("div", { class: "legend" }, h("span", { class: `l${at % COLOURS}`, title: prompt.raw, text: `${prompt.provider} · ${prompt.label}` }), h("b", { text: `${number((sums.testPassCount * 100) / all, 1)}%` })),
      h("svg", { viewBox: `0 0 ${WIDTH} 9`, height: 9, role: "img", "aria-label": told, preserveAspectRatio: "none" }, h("title", { text: told }),
        counts.map(([name, count]) => {
          const width = (count / all) * WIDTH;
          x += width;
          return h("rect", { class: `b-${name}`, x: x - width, y: 0, width, height: 9 });
        })));
  };
  return h("figure", {}, h("figcaption", { text: "Passed" }), prompts.map(bar));
}

function histogram(prompts, scores) {
  const height = 110;
  const base = height - 14;
  const most = Math.max(1, ...scores.flat());
  const slot = WIDTH / 11;
  const width = Math.min(22, (slot - 3) / scores.length);
  const names = Array.from({ length: 11 }, (_, at) => (at === 10 ? "1" : `${at / 10}`));
  return h("figure", {}, h("figcaption", { text: "Scores" }),
    h("svg", { viewBox: `0 0 ${WIDTH} ${height}`, height, role: "img", "aria-label": "How many rows have which score", preserveAspectRatio: "none" },
      h("line", { x1: 0, x2: WIDTH, y1: base, y2: base, class: "axis" }),
      scores.flatMap((counts, column) => counts.map((count, at) => count && h("rect", {
        class: `b-${column % COLOURS}`, x: at * slot + column * width + 1, width: Math.max(1, width - 1), rx: 1,
        y: base - Math.max(2, (count / most) * (base - 4)), height: Math.max(2, (count / most) * (base - 4)),
      }, h("title", { text: `${prompts[column] ? prompts[column].provider : ""}: ${number(count)} rows from ${names[at]}${at < 10 ? ` to ${(at + 1) / 10}` : ""}` })))),
    ),
    h("div", { class: "ticks", "aria-hidden": "true" }, names.map((name) => h("span", { text: name }))));
}

/** The most runs that are shown over time. */
const RUNS = 40;

function trend(history, id, open) {
  const own = history.find((entry) => entry.evalId === id);
  if (!own) return null;
  const same = history.filter((entry) => entry.datasetId === own.datasetId).sort((a, b) => a.createdAt - b.createdAt);
  const runs = [...new Set(same.map((entry) => entry.evalId))].slice(-RUNS);
  if (runs.length < 2) return null;
  const height = 110;
  // Columns at the same place belong together, for prompts change from run to run.
  const columns = runs.map((run) => same.filter((entry) => entry.evalId === run));
  const count = Math.min(COLOURS, columns[runs.indexOf(id)]?.length ?? columns[columns.length - 1].length);
  const point = (entry) => {
    const { testPassCount: passed = 0, testFailCount: failed = 0, testErrorCount: errors = 0 } = entry.metrics || {};
    const percent = (passed * 100) / (passed + failed + errors || 1);
    const x = 6 + (runs.indexOf(entry.evalId) * (WIDTH - 12)) / (runs.length - 1);
    return { entry, percent, x, y: height - 8 - (percent / 100) * (height - 16) };
  };
  const line = (at) => {
    const points = columns.map((entries) => entries[at]).filter(Boolean).map(point);
    return [
      h("path", { class: `trend t${at}`, d: points.map(({ x, y }, index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("") }),
      points.map(({ entry, percent, x, y }) => h("path", {
        class: `dot t${at}${entry.evalId === id ? " own" : ""}`, d: `M${x.toFixed(1)} ${y.toFixed(1)}h0`, onclick: () => entry.evalId !== id && open(entry.evalId),
      }, h("title", { text: `${number(percent, 1)}% passed · ${entry.provider} · ${entry.label}\n${entry.description || entry.evalId} · ${new Date(entry.createdAt).toLocaleString()}` }))),
    ];
  };
  return h("figure", { class: "over-time" }, h("figcaption", { text: `Passed, last ${runs.length} runs of these tests` }),
    h("svg", { viewBox: `0 0 ${WIDTH} ${height}`, height, role: "img", "aria-label": "How much passed in each run of these tests", preserveAspectRatio: "none" },
      [0, 50, 100].map((percent) => h("line", { class: "axis", x1: 0, x2: WIDTH, y1: height - 8 - (percent / 100) * (height - 16), y2: height - 8 - (percent / 100) * (height - 16) })),
      Array.from({ length: count }, (_, at) => line(at))));
}

/** Shows the charts, unless there is too little to see. `open` is called with the id of another run. */
export function show(container, { prompts, scores, total, history, id, open }) {
  container.hidden = total < 2 || !prompts.length;
  if (container.hidden) return;
  fill(container, bars(prompts.slice(0, 12)), scores && scores.length ? histogram(prompts, scores.slice(0, COLOURS)) : null, history && trend(history, id, open));
}
