// Sets up a red team in five steps, writes its configuration, and runs it.

import { api, ask, follow } from "./api.js";
import { RUN_ID } from "./again.js";
import { button, byId, fill, h, say } from "./dom.js";

const STEPS = ["Target", "Purpose", "Plugins", "Strategies", "Review"];

let offer = null;
let at = 0;
let lines = "";
/** How the red team ended; null while it runs, and before there is one. */
let ended = null;
let running = false;
const draft = { kind: "validator", name: "", id: "", config: "{}", purpose: "", features: "", industry: "", restrictions: "", plugins: [], strategies: [] };

/** The draft as the server takes it. */
function sent() {
  const { kind, config, ...rest } = draft;
  let settings;
  try {
    settings = JSON.parse(config || "{}");
  } catch (error) {
    throw new Error(`the settings of the target are no JSON: ${error.message}`);
  }
  if (!settings || typeof settings !== "object" || Array.isArray(settings)) throw new Error("the settings of the target must be a JSON object");
  return { ...rest, config: settings };
}

function complain(text) {
  byId("message").hidden = !text;
  byId("message").textContent = text;
}

function field(label, key, about, more = {}) {
  const { lines: many, code, ...attributes } = more;
  const input = h(many ? "textarea" : "input", {
    type: many ? null : "text", name: key, class: code ? "code" : null, autocomplete: "off", spellcheck: code ? "false" : null,
    oninput: (event) => (draft[key] = event.target.value), ...attributes,
  });
  input.value = draft[key];
  return h("label", { class: "field" }, label, input, about && h("span", { text: about }));
}

function choices(key, offered) {
  const one = (choice) => {
    const box = h("input", {
      type: "checkbox", name: key, value: choice.id,
      onchange: (event) => (draft[key] = event.target.checked ? [...draft[key], choice.id] : draft[key].filter((id) => id !== choice.id)),
    });
    box.checked = draft[key].includes(choice.id);
    const facts = [choice.severity, choice.probes && `${choice.probes} probes`].filter(Boolean).join(", ");
    return h("label", {}, box, h("span", {}, choice.id, h("small", { text: [choice.about, facts].filter(Boolean).join(" · ") })));
  };
  return h("fieldset", { class: "choices", "aria-label": STEPS[at] }, offered.map(one));
}

const steps = [
  () => [
    h("label", { class: "field" }, "Type", h("select", {
      name: "kind",
      onchange: (event) => {
        const usual = (name) => offer.kinds.find((kind) => kind.name === name).usual;
        // An id that nobody changed goes with the type.
        if (draft.id === usual(draft.kind)) draft.id = usual(event.target.value);
        draft.kind = event.target.value;
        draw();
      },
    }, offer.kinds.map((kind) => h("option", { value: kind.name, selected: kind.name === draft.kind, text: `${kind.name}: ${kind.about}` })))),
    field("Name", "name", "of the target in reports"),
    field("Id", "id", `such as ${offer.kinds.map((kind) => kind.usual).join(", ")}`),
    field("Settings", "config", "a JSON object", { lines: true, code: true }),
  ],
  () => [
    field("Purpose", "purpose", "what the target is for", { lines: true }), field("Key features", "features"), field("Industry", "industry"),
    field("Restrictions", "restrictions", "what it must not do", { lines: true }),
  ],
  () => [
    h("p", { class: "buttons" },
      button("Recommended", "All probes", () => choose("plugins", offer.defaults.plugins)),
      button("None", "Choose nothing", () => choose("plugins", []))),
    choices("plugins", [{ id: "recommended", about: "all probes of this program" }, ...offer.plugins]),
  ],
  () => [choices("strategies", offer.strategies)],
  () => {
    const place = h("div", { class: "review" });
    review(place);
    return [place];
  },
];

function choose(key, ids) {
  draft[key] = [...ids];
  draw();
}

/** Shows the configuration, what it skips, and what can be done with it. */
async function review(place) {
  let found;
  try {
    found = await ask("POST", "/api/redteam/review", sent());
  } catch (error) {
    complain(error.message);
    return;
  }
  const replace = h("input", { type: "checkbox", name: "replace" });
  const write = (run) => async () => {
    complain("");
    try {
      const { path } = await ask("POST", "/api/redteam/setup", { draft: sent(), replace: replace.checked || run, run });
      say(`Written to ${path}.`);
    } catch (error) {
      complain(error.message);
    }
  };
  fill(place,
    h("pre", { id: "text", text: found.text }), found.skipped.map((text) => h("p", { class: "skipped", text })),
    h("p", { class: "buttons" },
      button("Save", "Write the configuration", write(false)),
      h("label", {}, replace, " replace a configuration that is there"),
      button("Run now", "Write the configuration, replacing one that is there, and run it", write(true), { class: "main", id: "run", disabled: running }),
      button("Stop", "Interrupt the red team", () => api.stop().catch((error) => complain(error.message)), { id: "stop", disabled: !running })),
    h("div", { id: "output" }));
  output();
}

/** What the red team prints, with a link to its answers as soon as they are stored. */
function output() {
  const place = byId("output");
  if (!place) return;
  byId("run").disabled = running;
  byId("stop").disabled = !running;
  if (!running && ended === null) return;
  const id = lines.match(RUN_ID);
  const state = running ? "Running…" : ended === 0 ? "No breach." : ended === 100 ? "Breached." : ended === 3 ? "Inconclusive." : `Ended with status ${ended}.`;
  fill(place, h("p", {}, h("b", { id: "state", text: state }), id && [" ",
    h("a", { href: `/report?evalId=${encodeURIComponent(id[0])}`, text: "See the report" }), " ", h("a", { href: `/eval/${encodeURIComponent(id[0])}`, text: "See the answers" })]), h("pre", { id: "lines", text: lines }));
  const printed = byId("lines");
  printed.scrollTop = printed.scrollHeight;
}

function draw() {
  complain("");
  fill(byId("steps"), STEPS.map((name, step) => button(`${step + 1}. ${name}`, name, () => go(step), { "aria-current": step === at ? "step" : null })));
  fill(byId("step"), h("h2", { text: STEPS[at] }), steps[at]());
  fill(byId("turn"), at > 0 && button("Back", "The step before", () => go(at - 1)), at < STEPS.length - 1 && button("Next", "The next step", () => go(at + 1), { class: "main" }));
}

function go(step) {
  at = step;
  draw();
}

function listen() {
  follow({
    begins: () => {
      [lines, ended, running] = ["", null, true];
      output();
    },
    prints: (more) => {
      lines += `${more}\n`;
      output();
    },
    ends: (status) => {
      // The server reports an end where nothing was started, too.
      if (!running) return;
      [ended, running] = [status, false];
      output();
    },
  });
}

try {
  offer = await ask("GET", "/api/redteam/setup");
  const { defaults, kinds, directory } = offer;
  Object.assign(draft, { name: defaults.name, id: kinds[0].usual, purpose: defaults.purpose, plugins: [...defaults.plugins], strategies: [...defaults.strategies] });
  byId("about").textContent = `The configuration goes to ${directory}`;
  draw();
  listen();
} catch (error) {
  complain(error.message);
}
