// Two charts: how much of each column passed, and how the scores spread.

import { fill, h } from "./dom.js";
import { number } from "./table.js";

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
      h("svg", { viewBox: `0 0 ${WIDTH} 9`, width: WIDTH, height: 9, role: "img", "aria-label": told, preserveAspectRatio: "none" }, h("title", { text: told }),
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
    h("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": "How many rows have which score" },
      h("line", { x1: 0, x2: WIDTH, y1: base, y2: base, class: "axis" }),
      scores.flatMap((counts, column) => counts.map((count, at) => count && h("rect", {
        class: `b-${column % COLOURS}`, x: at * slot + column * width + 1, width: Math.max(1, width - 1), rx: 1,
        y: base - Math.max(2, (count / most) * (base - 4)), height: Math.max(2, (count / most) * (base - 4)),
      }, h("title", { text: `${prompts[column] ? prompts[column].provider : ""}: ${number(count)} rows from ${names[at]}${at < 10 ? ` to ${(at + 1) / 10}` : ""}` })))),
    ),
    h("div", { class: "ticks", "aria-hidden": "true" }, names.map((name) => h("span", { text: name }))));
}

/** Shows the charts, unless there is too little to see. */
export function show(container, prompts, scores, total) {
  container.hidden = total < 2 || !prompts.length;
  if (container.hidden) return;
  fill(container, bars(prompts.slice(0, 12)), scores && scores.length ? histogram(prompts, scores.slice(0, COLOURS)) : null);
}
