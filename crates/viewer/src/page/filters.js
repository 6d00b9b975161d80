// Choosing rows: kinds, text, conditions; and how the table looks.

import { api } from "./api.js";
import { append, button, byId, fill, h } from "./dom.js";
import { MODES, prefer, SIZES, state, taste } from "./state.js";
import { columnName, number } from "./table.js";

const METRIC = [["is_defined", "is given"], ["eq", "="], ["neq", "≠"], ["gt", ">"], ["gte", "≥"], ["lt", "<"], ["lte", "≤"]];
const METADATA = [["equals", "is"], ["contains", "contains"], ["not_contains", "does not contain"], ["exists", "exists"]];
const NO_VALUE = new Set(["is_defined", "exists"]);

/** Shows the controls. `changed` is called when other rows are wanted, `redraw` when the same should look different. */
export function show(container, page, changed, redraw) {
  container.hidden = false;
  let waiting;
  const search = h("input", {
    type: "search", id: "search", placeholder: "Search (/)", "aria-label": "Search", autocomplete: "off", spellcheck: "false",
    oninput: (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        state.search = event.target.value;
        changed(false);
      }, 250);
    },
  });
  search.value = state.search;
  fill(container,
    h("div", { class: "modes", role: "radiogroup", "aria-label": "Kind of rows" }, MODES.filter(([mode]) => mode !== "newly-failing" || state.beside.length).map(([mode, name]) => h("label", { class: "mode" },
      h("input", { type: "radio", name: "mode", value: mode, checked: state.mode === mode, onchange: () => ((state.mode = mode), changed()) }), h("span", { text: name })))),
    h("div", { class: "searching" }, search,
      h("label", { class: "check-label", title: "the text is a regular expression" },
        h("input", { type: "checkbox", id: "regex", "aria-label": "regular expression", checked: state.regex, onchange: (event) => ((state.regex = event.target.checked), state.search && changed()) }), ".*")),
    button("+ Condition", "Add a condition on a metric or on metadata", () => add(changed)),
    h("span", { id: "count", class: "faint" }), looks(page, redraw));
}

/** How many rows there are. */
export function count(page) {
  const all = page.filteredCount === page.totalCount;
  byId("count").textContent = `${number(page.filteredCount)}${all ? "" : ` of ${number(page.totalCount)}`} tests`;
}

function looks(page, redraw) {
  const list = h("div", { class: "menu" });
  const names = () => [...page().table.head.vars.map((name) => [name, name]), ...page().table.head.prompts.map((prompt) => [columnName(prompt), columnName(prompt).replace(/^·/, "")])];
  const set = (changes) => {
    prefer(changes);
    redraw();
  };
  const hide = (name, hidden) => {
    const others = (taste.hidden[state.id] || []).filter((other) => other !== name);
    set({ hidden: { ...taste.hidden, [state.id]: hidden ? [...others, name] : others } });
  };
  return h("details", { class: "drop", ontoggle: (event) => event.target.open && fill(list,
    h("fieldset", {}, h("legend", { text: "Cells" }), [["small", "Small"], ["medium", "Medium"], ["large", "Whole"]].map(([size, name]) => h("label", {},
      h("input", { type: "radio", name: "height", checked: taste.height === size, onchange: () => set({ height: size }) }), ` ${name}`))),
    h("fieldset", {}, h("legend", { text: "Show" }),
      h("label", {}, h("input", { type: "checkbox", checked: taste.details, onchange: (event) => set({ details: event.target.checked }) }), " time, cost, tokens"),
      h("label", {}, h("input", { type: "checkbox", checked: taste.charts, onchange: (event) => set({ charts: event.target.checked }) }), " charts")),
    h("fieldset", {}, h("legend", { text: "Columns" }), names().map(([name, label]) => h("label", {},
      h("input", { type: "checkbox", checked: !(taste.hidden[state.id] || []).includes(name), onchange: (event) => hide(name, !event.target.checked) }), ` ${label}`)))) },
    h("summary", { text: "View" }), list);
}

function add(changed) {
  state.filters.push({ type: "metadata", operator: "contains", field: "", value: "", logicOperator: (state.filters[1] || {}).logicOperator || "and" });
  conditions(byId("filters"), null, changed);
  const last = byId("filters").querySelectorAll(".condition");
  last[last.length - 1].querySelector(".field").focus();
}

let known = { id: "", page: null, keys: [] };

/** Shows the conditions that rows must meet. */
export function conditions(container, page, changed) {
  if (page) known.page = page;
  const metrics = known.page ? [...new Set(known.page.table.head.prompts.flatMap((prompt) => Object.keys(prompt.metrics.namedScores || {})))] : [];
  if (state.filters.length && known.id !== state.id) {
    known = { ...known, id: state.id, keys: [] };
    api.metadataKeys(state.id).then((keys) => {
      known.keys = keys;
      const list = byId("metadata-keys");
      if (list) fill(list, keys.map((value) => h("option", { value })));
    }, () => {});
  }
  const apply = () => {
    // A condition that is not finished yet asks nothing.
    if (state.filters.every((filter) => filter.field)) changed();
  };
  const redraw = () => conditions(container, null, changed);
  const options = (list, chosen) => list.map(([value, text]) => h("option", { value, text, selected: value === chosen }));
  const condition = (filter, at) => {
    const metric = filter.type === "metric";
    const values = `values-${at}`;
    const set = (changes, again) => {
      Object.assign(filter, changes);
      if (again) redraw();
      apply();
    };
    return h("div", { class: "condition", role: "group", "aria-label": `Condition ${at + 1}` },
      at === 0 ? h("span", { class: "faint", text: "where" }) : h("select", {
        "aria-label": "Joined by",
        onchange: (event) => {
          state.filters.forEach((other) => (other.logicOperator = event.target.value));
          redraw();
          apply();
        },
      }, options([["and", "and"], ["or", "or"]], filter.logicOperator)),
      h("select", { "aria-label": "About", onchange: (event) => set({ type: event.target.value, operator: event.target.value === "metric" ? "gte" : "contains", field: "", value: "" }, true) },
        options([["metric", "metric"], ["metadata", "metadata"]], filter.type)),
      h("input", { class: "field", list: metric ? "metric-names" : "metadata-keys", "aria-label": "Name", placeholder: "name", value: filter.field || "", onchange: (event) => {
        set({ field: event.target.value });
        if (!metric && filter.field) api.metadataValues(state.id, filter.field).then((found) => byId(values) && fill(byId(values), found.slice(0, 100).map((value) => h("option", { value }))), () => {});
      } }),
      h("select", { "aria-label": "Compared", onchange: (event) => set({ operator: event.target.value }, true) }, options(metric ? METRIC : METADATA, filter.operator)),
      !NO_VALUE.has(filter.operator) && h("input", { type: metric ? "number" : "text", step: "any", "aria-label": "Value", placeholder: "value", list: metric ? null : values, value: String(filter.value ?? ""),
        onchange: (event) => set({ value: metric ? Number(event.target.value) : event.target.value }) }),
      !metric && h("datalist", { id: values }),
      button("✕", "Remove this condition", () => {
        state.filters.splice(at, 1);
        redraw();
        apply();
      }));
  };
  fill(container, state.filters.map(condition));
  if (state.filters.length) {
    append(container, [h("datalist", { id: "metric-names" }, metrics.map((value) => h("option", { value }))),
      h("datalist", { id: "metadata-keys" }, known.keys.map((value) => h("option", { value })))]);
  }
}

/** Shows where in the table the page is. */
export function pager(container, page, go) {
  const pages = Math.max(1, Math.ceil(page.filteredCount / state.size));
  container.hidden = page.totalCount <= SIZES[0];
  const from = state.page * state.size;
  fill(container,
    button("‹", "Previous page", () => go(state.page - 1), { disabled: state.page === 0 }),
    h("span", {}, `${number(Math.min(from + 1, page.filteredCount))}–${number(Math.min(from + state.size, page.filteredCount))} of ${number(page.filteredCount)}`),
    button("›", "Next page", () => go(state.page + 1), { disabled: state.page + 1 >= pages }),
    h("label", {}, "page ", h("input", { type: "number", min: 1, max: pages, value: String(state.page + 1), onchange: (event) => go(Math.max(1, Math.min(pages, Number(event.target.value) || 1)) - 1) }), ` of ${number(pages)}`),
    h("label", {}, h("select", { "aria-label": "Tests on a page", onchange: (event) => {
      state.size = Number(event.target.value);
      go(Math.floor(from / state.size));
    } }, SIZES.map((size) => h("option", { value: String(size), text: String(size), selected: size === state.size }))), " a page"));
}
