// Code with colours, and the code in answers.

import { h } from "./dom.js";

const words = (text) => new Set(text.split(" "));

const PYTHON = {
  comment: "#[^\\n]*",
  string: "(?:[rbfuRBFU]{0,2})(?:\"\"\"[\\s\\S]*?(?:\"\"\"|$)|'''[\\s\\S]*?(?:'''|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?)",
  keywords: words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return True try while with yield"),
};

const C_LIKE = {
  comment: "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)",
  string: "`(?:\\\\[\\s\\S]|[^`\\\\])*`?|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?",
  keywords: words("abstract async await boolean break case catch char class const continue debugger default delete do double else enum export extends false final finally float for from function if implements import in instanceof int interface let long new null of package private protected public return static super switch this throw throws true try type typeof undefined var void while with yield"),
};

const SHELL = {
  comment: "(?:^|(?<=\\s))#[^\\n]*",
  string: "\"(?:\\\\[\\s\\S]|[^\"\\\\])*\"?|'[^']*'?|\\$\\{[^}\\n]*\\}?|\\$\\w+",
  keywords: words("case do done elif else esac exit export fi for function if in local read return select set shift source then trap unset until while"),
};

const DATA = {
  comment: "(?:^|(?<=\\s))#[^\\n]*",
  string: "\"(?:\\\\.|[^\"\\\\\\n])*\"?|'[^'\\n]*'?",
  keywords: words("true false null"),
};

const FAMILIES = {
  python: PYTHON, py: PYTHON, r: { ...PYTHON, keywords: words("break else FALSE for function if in Inf NA NaN next NULL repeat return TRUE while library") },
  javascript: C_LIKE, js: C_LIKE, mjs: C_LIKE, jsx: C_LIKE, typescript: C_LIKE, ts: C_LIKE, tsx: C_LIKE, java: C_LIKE, c: C_LIKE, cpp: C_LIKE, go: C_LIKE, rust: C_LIKE,
  bash: SHELL, sh: SHELL, shell: SHELL, zsh: SHELL, json: DATA, yaml: DATA, yml: DATA, toml: DATA,
  sql: { comment: "--[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)", string: "'(?:''|[^'])*'?", keywords: words("SELECT FROM WHERE AND OR NOT INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE JOIN LEFT RIGHT INNER ON GROUP BY ORDER LIMIT AS IN IS NULL select from where and or not insert into values update set delete create table join left right inner on group by order limit as in is null") },
};

/** Code longer than this many characters is shown without colours. */
const MAX_LENGTH = 60000;

function tokens(code, family) {
  const pattern = new RegExp(`(${family.comment})|(${family.string})|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, "gm");
  const parts = [];
  let end = 0;
  for (const match of code.matchAll(pattern)) {
    const [text, comment, string, digits, name] = match;
    const kind = comment ? "comment" : string ? "string" : digits ? "digits"
      : family.keywords.has(name) ? "keyword" : code[match.index + text.length] === "(" ? "call" : "";
    if (!kind) continue;
    if (match.index > end) parts.push(code.slice(end, match.index));
    parts.push(h("span", { class: `c-${kind}`, text }));
    end = match.index + text.length;
  }
  parts.push(code.slice(end));
  return parts;
}

/** A block of code, with a button that copies it. */
export function block(code, language = "") {
  const family = FAMILIES[language.toLowerCase()];
  const copy = h("button", { type: "button", class: "copy", text: "Copy", onclick: () => navigator.clipboard.writeText(code).then(() => (copy.textContent = "Copied"), () => (copy.textContent = "Not allowed")) });
  return h("div", { class: "code" }, h("div", { class: "code-head" }, h("span", { text: language || "text" }), copy),
    h("pre", { tabindex: 0 }, h("code", {}, family && code.length <= MAX_LENGTH ? tokens(code, family) : code)));
}

/** Characters of a text that are shown before somebody asks for all. */
const FIRST = 50000;

/** Text as it is, at first not all of it if it is huge. */
export function plain(text, attributes = {}) {
  const pre = h("pre", { class: "plain", tabindex: 0, ...attributes, text: text.slice(0, FIRST) });
  if (text.length <= FIRST) return pre;
  const more = h("button", {
    type: "button", text: `Show all ${text.length.toLocaleString("en")} characters`,
    onclick: () => {
      pre.textContent = text;
      more.remove();
    },
  });
  return h("div", {}, pre, more);
}

// Models also begin one in the middle of a line.
const FENCE = /([`~]{3,})[ \t]*([\w+#.-]*)[^\n`]*\n([\s\S]*?)(?:^\1[ \t]*$|(?![\s\S]))/gm;

/** The beginning of an answer for a cell of a table: text, and code without its fences. */
export function brief(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(FENCE)) {
    const before = text.slice(end, match.index);
    if (before.trim()) parts.push(before);
    const family = FAMILIES[match[2].toLowerCase()];
    parts.push(h("code", {}, family ? tokens(match[3], family) : match[3]));
    end = match.index + match[0].length;
  }
  parts.push(end ? text.slice(end).replace(/^\n+/, "") : text);
  return parts;
}

/** An answer: JSON indented, code between fences with colours, the rest as it is. */
export function answer(output) {
  if (output === null || output === undefined) return h("p", { class: "faint", text: "There is no answer." });
  if (typeof output !== "string") return block(JSON.stringify(output, null, 2), "json");
  if (output.length > FIRST) return plain(output);
  if (/^\s*[[{]/.test(output)) {
    try {
      return block(JSON.stringify(JSON.parse(output), null, 2), "json");
    } catch {
      // Not JSON after all.
    }
  }
  const parts = [];
  let end = 0;
  for (const match of output.matchAll(FENCE)) {
    const before = output.slice(end, match.index).replace(/^\n|\n$/g, "");
    if (before.trim()) parts.push(plain(before));
    parts.push(block(match[3].replace(/\n$/, ""), match[2]));
    end = match.index + match[0].length;
  }
  const rest = output.slice(end);
  if (rest.trim() || !parts.length) parts.push(plain(end ? rest.trim() : rest));
  return h("div", {}, parts);
}
