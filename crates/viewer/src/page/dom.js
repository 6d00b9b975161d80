// Makes elements. Texts become text nodes, never HTML: most of them were written by models.

const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(["svg", "g", "rect", "line", "path", "title"]);

/** An element. Keys that begin with `on` are listeners; `class`, `text` and attributes are what they say; nothing is left out. */
export function h(tag, attributes = {}, ...children) {
  const element = TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "text") element.textContent = value;
    else if (key === "value") element.value = value;
    else if (key === "vars") for (const [name, size] of Object.entries(value)) element.style.setProperty(name, size);
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/** Puts children at the end; lists are flattened, nothing is left out. */
export function append(element, children) {
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child);
  }
}

/** Replaces what is in an element. */
export function fill(element, ...children) {
  element.textContent = "";
  append(element, children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A button. The label explains it, and is its name where there is only a sign. */
export function button(text, label, onclick, more = {}) {
  return h("button", { type: "button", title: label, "aria-label": /[a-z]{2}/i.test(text) ? null : label, onclick, ...more }, text);
}

/** Tells people who listen to the page; seen for a moment. */
export function say(text) {
  const status = byId("status");
  status.textContent = text;
  // Shown again to be above a dialog that was opened since.
  status.hidePopover();
  status.showPopover();
  clearTimeout(say.timer);
  say.timer = setTimeout(() => status.hidePopover(), 3000);
}

/** Opens a dialog over the page; it is removed when it closes, and the focus goes back by itself. */
export function dialog(label, attributes, ...children) {
  const element = h("dialog", { "aria-label": label, ...attributes }, ...children);
  element.addEventListener("close", () => element.remove());
  // A click beside it is on the dialog itself.
  element.addEventListener("mousedown", (event) => event.target === element && element.close());
  document.body.append(element);
  element.showModal();
  return element;
}

/** Asks for one line of text; gives null when it is not given. */
export function ask(question, value, action) {
  return new Promise((resolve) => {
    const input = h("input", { type: "text", "aria-label": question, autocomplete: "off" });
    input.value = value;
    let answer = null;
    const form = h("form", { method: "dialog", onsubmit: () => (answer = input.value) },
      h("h2", { text: question }), input,
      h("p", { class: "buttons" }, h("button", { type: "button", text: "Cancel", onclick: () => box.close() }),
        h("button", { class: "main", text: action })));
    const box = dialog(question, { class: "small" }, form);
    box.addEventListener("close", () => resolve(answer));
    input.select();
  });
}

/** Asks yes or no. */
export function confirmed(question, detail, action) {
  return new Promise((resolve) => {
    let answer = false;
    const box = dialog(question, { class: "small" }, h("form", { method: "dialog", onsubmit: () => (answer = true) },
      h("h2", { text: question }), h("p", { text: detail }),
      h("p", { class: "buttons" }, h("button", { type: "button", text: "Cancel", onclick: () => box.close() }),
        h("button", { class: "danger", text: action }))));
    box.addEventListener("close", () => resolve(answer));
  });
}
