// Choosing a run, or one to compare with.

import { api } from "./api.js";
import { dialog, fill, h } from "./dom.js";
import { number } from "./table.js";

/** When something was, as people write it. */
export const when = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A dialog in which a run is looked for and chosen; gives its id, or null. `other` leaves the current one out, and puts those of the same
 * tests first. */
export function choose(title, current, other = false) {
  return new Promise((resolve) => {
    // Null until they are read: what is typed meanwhile counts.
    let runs = null;
    let isHurried = false;
    let tests = null;
    let chosen = null;
    let at = 0;
    let shown = [];
    const isSame = (run) => other && run.datasetId === tests;
    const take = (run) => {
      chosen = run ? run.evalId : null;
      box.close();
    };
    const enter = () => {
      if (!runs) isHurried = true;
      else if (shown[at]) take(shown[at]);
    };
    const option = (run, place) => h("div", {
      role: "option", id: `run-${place}`, class: "run", "aria-selected": String(place === at), onclick: () => take(run),
      onmousemove: () => place !== at && select(place),
    },
      h("div", { class: "run-name" }, run.description || run.evalId, run.evalId === current && h("span", { class: "tag", text: " · open" }), isSame(run) && h("span", { class: "tag faint", text: " · same tests" })),
      h("div", { class: "run-rate" }, h("span", { class: "bar", "aria-hidden": "true" }, h("span", { class: "fill", vars: { "--part": `${run.passRate}%` } })), `${number(run.passRate, 1)}%`),
      h("div", { class: "faint", text: `${when(run.createdAt)} · ${number(run.numTests)} tests · ${(run.providers || []).map((one) => one.id).join(", ")} · ${run.evalId}` }));
    const list = h("div", { role: "listbox", id: "runs", class: "runs", "aria-label": "Runs" });
    const select = (place) => {
      at = Math.max(0, Math.min(place, shown.length - 1));
      [...list.children].forEach((child, index) => child.setAttribute("aria-selected", String(index === at)));
      input.setAttribute("aria-activedescendant", `run-${at}`);
      if (list.children[at]) list.children[at].scrollIntoView({ block: "nearest" });
    };
    const filter = () => {
      if (!runs) return;
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const text = (run) => `${run.label} ${(run.providers || []).map((one) => one.id).join(" ")} ${when(run.createdAt)}`.toLowerCase();
      shown = runs.filter((run) => wanted.every((word) => text(run).includes(word))).slice(0, 200);
      fill(list, shown.length ? shown.map(option) : h("p", { class: "empty", text: runs.length ? "No run is called that." : other ? "There is no other run." : "No run is stored yet: `sandcove eval` makes one." }));
      select(0);
    };
    const input = h("input", {
      type: "search", role: "combobox", "aria-expanded": "true", "aria-controls": "runs", "aria-label": "Find a run", placeholder: "Find by name, id, provider or date",
      autocomplete: "off", oninput: filter,
      onkeydown: (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
        if (step) select(at + step);
        else if (event.key === "Enter") enter();
        else return;
        event.preventDefault();
      },
    });
    const box = dialog(title, { class: "choose" }, h("h2", { text: title }), input, list);
    box.addEventListener("close", () => resolve(chosen));
    input.focus();
    api.runs().then((all) => {
      tests = (all.find((run) => run.evalId === current) || {}).datasetId;
      runs = other ? all.filter((run) => run.evalId !== current).sort((a, b) => isSame(b) - isSame(a)) : all;
      filter();
      if (isHurried) enter();
    }, (error) => fill(list, h("p", { class: "empty", text: error.message })));
  });
}
