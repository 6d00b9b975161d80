// What differs between two texts.

import { h } from "./dom.js";

/** Comparing takes memory for so many pairs of pieces; texts with more differ as a whole. */
const MAX_CELLS = 2000000;

/** Pieces as `[sign, piece]`: `=` in both, `-` only in the first, `+` only in the second. */
export function compare(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const a = before.slice(start, before.length - end);
  const b = after.slice(start, after.length - end);
  const same = (pieces) => pieces.map((piece) => ["=", piece]);
  return [...same(before.slice(0, start)), ...middle(a, b), ...same(end ? before.slice(-end) : [])];
}

function middle(a, b) {
  if (a.length * b.length > MAX_CELLS) return [...a.map((piece) => ["-", piece]), ...b.map((piece) => ["+", piece])];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const out = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push(["=", a[i]]);
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out;
}

const SIGNS = { "=": "", "-": "del", "+": "ins" };

/** Two texts in one: words for short ones, otherwise lines. */
export function inline(expected, actual) {
  const short = expected.length + actual.length < 400 && !expected.includes("\n") && !actual.includes("\n");
  if (short) {
    const cut = (text) => text.split(/(\s+|\b)/).filter(Boolean);
    return h("pre", { class: "diff", tabindex: 0 }, compare(cut(expected), cut(actual)).map(([sign, piece]) => (sign === "=" ? piece : h(SIGNS[sign], { text: piece }))));
  }
  const line = ([sign, text]) => h("div", { class: `d${SIGNS[sign]}` }, h("span", { class: "sign", text: sign === "=" ? " " : sign }), text || " ");
  return h("pre", { class: "diff", tabindex: 0 }, compare(expected.split("\n"), actual.split("\n")).map(line));
}

/** Two texts side by side, line by line. */
export function beside(left, right, names) {
  const lines = [];
  let removed = [];
  let added = [];
  const settle = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++) lines.push([removed[at], added[at], true]);
    removed = [];
    added = [];
  };
  for (const [sign, text] of compare(left.split("\n"), right.split("\n"))) {
    if (sign === "-") removed.push(text);
    else if (sign === "+") added.push(text);
    else {
      settle();
      lines.push([text, text, false]);
    }
  }
  settle();
  const cell = (text, changed, kind) => h("td", { class: changed && text !== undefined ? `d${kind}` : "", text: text === undefined ? "" : text });
  return h("div", { class: "scroll", tabindex: 0 }, h("table", { class: "beside" },
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", text: name })))),
    h("tbody", {}, lines.map(([a, b, changed]) => h("tr", {}, cell(a, changed, "del"), cell(b, changed, "ins"))))));
}
