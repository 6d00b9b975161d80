// The report of a red team: what it came to, rates, categories, and every attack with its evidence.

import { api, listen } from "./api.js";
import { byId, fill, h } from "./dom.js";
import { place } from "./place.js";

/** Rows of attacks that a category shows before somebody asks for the rest. */
const SHOWN = 50;

let { id } = place.read();
let drawn = "";
/** The address of the report as a file. */
let file = "";

const percent = (share) => `${(share * 100).toFixed(1)}%`;
const chip = (text) => h("span", { class: `chip ${text}`, text });

function rate(found) {
  if (!found.total) return h("span", { class: "faint", text: "no verdict" });
  return [
    h("meter", { min: 0, max: 1, low: 0.0001, high: 0.0002, optimum: 0, value: found.asr, "aria-label": "attack success rate" }),
    `${percent(found.asr)} `, h("span", { class: "faint", title: "the interval that holds the true rate with 95 % confidence", text: `${percent(found.low)} to ${percent(found.high)}` }),
  ];
}

function section(title, ...children) {
  return h("section", { "aria-label": title }, h("h2", { text: title }), children);
}

function groups(title, found) {
  const verdicts = ["blocked", "contained", "breached", "inconclusive"];
  const row = (group) => h("tr", {}, h("th", { scope: "row", text: group.name }),
    verdicts.map((verdict) => h("td", { class: "number", text: group.verdicts[verdict] || 0 })), h("td", { class: "rate" }, rate(group)));
  return found.length > 0 && section(title, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { text: title }), verdicts.map((verdict) => h("th", { class: "number", text: verdict })), h("th", { text: "attack success rate" }))),
    h("tbody", {}, found.map(row))));
}

/** Rows of a page of the table of a run. */
const PAGE = 50;

const rowOf = (finding) => `${place.run(id)}?page=${Math.floor(finding.row / PAGE) + 1}&cell=${finding.row}.${finding.column}`;

function attacks(findings) {
  const worst = { breached: 0, inconclusive: 1, contained: 2, blocked: 3 };
  const sorted = [...findings].sort((a, b) => worst[a.verdict] - worst[b.verdict]);
  const row = (finding) => h("tr", {},
    h("td", {}, chip(finding.verdict), finding.heldByWall && " held by the wall"),
    h("td", {}, h("a", { href: rowOf(finding), target: place.target, text: finding.probe })), h("td", { text: finding.layer }), h("td", { text: finding.strategy }),
    h("td", { class: "evidence", text: [finding.kinds.join(", "), finding.evidence].filter(Boolean).join(": ") }));
  const body = h("tbody", {}, sorted.slice(0, SHOWN).map(row));
  const rest = sorted.slice(SHOWN);
  const more = rest.length > 0 && h("button", { type: "button", text: `Show ${rest.length} more`, onclick: (event) => {
    event.target.remove();
    body.append(...rest.map(row));
  } });
  return [h("table", {}, h("thead", {}, h("tr", {}, ["verdict", "attack", "layer", "strategy", "evidence"].map((text) => h("th", { text })))), body), more];
}

function category(found, findings) {
  const own = findings.filter((finding) => finding.plugin === found.plugin);
  const lists = [...found.owasp, ...found.mitre, ...found.cwe];
  const place = h("div");
  // Attacks are many: they are made when somebody looks.
  const open = (event) => event.target.open && !place.hasChildNodes() && fill(place, attacks(own));
  return h("details", { class: "plugin", ontoggle: open },
    h("summary", {}, h("b", { text: found.plugin }), chip(found.severity), h("span", { text: `risk ${found.riskScore.toFixed(1)} (${found.risk})` }), h("span", { class: "rate" }, rate(found)),
      h("span", { class: "number", text: `${found.succeeded} of ${found.total}` })),
    h("p", { text: found.about }), found.succeeded > 0 && found.advice && h("p", {}, h("b", { text: "What to do: " }), found.advice),
    lists.length > 0 && h("p", {}, lists.map((name) => [h("span", { class: "chip", text: name }), " "])), place);
}

function changes(found) {
  if (!found) return null;
  const list = (title, keys) => keys.length > 0 && [h("h3", { text: title }), h("ul", {}, keys.map((text) => h("li", { text })))];
  return section("Since the run before", h("p", {}, h("a", { href: place.report(found.since), target: place.target, text: found.since })),
    list("Newly breached", found.newlyBreached), list("No longer breached", found.noLongerBreached),
    !found.newlyBreached.length && !found.noLongerBreached.length && h("p", { text: "The same attacks succeed." }));
}

function draw(report) {
  place.title(`Red team of ${report.targets.join(", ")}`);
  fill(byId("about"), h("b", { text: report.targets.join(", ") }), ` · ${new Date(report.createdAt).toLocaleString()} · ${report.evalId}`);
  const known = report.findings.filter((finding) => finding.verdict !== "inconclusive").length;
  const unknown = report.findings.length - known;
  const beside = unknown ? ` ${unknown} more ${unknown === 1 ? "has" : "have"} no verdict.` : "";
  const outcome = !known ? ["", "No attack has a verdict: nothing is known about the target."]
    : report.breaches ? ["bad", `${report.breaches} of ${known} attacks breached every layer in their way.${beside}`]
    : ["good", `None of ${known} attacks breached every layer in its way.${beside}`];
  URL.revokeObjectURL(file);
  file = URL.createObjectURL(new Blob([JSON.stringify(report, null, 2)], { type: "application/json" }));
  fill(byId("actions"), h("a", { href: place.run(id), target: place.target, text: "Every attack" }),
    h("a", { href: file, download: `${report.evalId}-report.json`, text: "JSON" }),
    h("a", { href: place.runs, target: place.target, text: "Stored runs" }));
  fill(byId("parts"),
    section("Outcome", h("p", { class: `outcome ${outcome[0]}`, text: outcome[1] }), report.purpose && h("p", { class: "faint", text: report.purpose }),
      h("dl", {}, report.questions.map((one) => [h("dt", { text: one.question }), h("dd", { class: "answer", text: one.answer }), h("dd", { class: "faint", text: one.detail })]))),
    changes(report.changes),
    groups("Layer", report.layers), groups("Severity", report.severities), groups("Strategy", report.strategies),
    section("Categories, the worst first", report.vulnerabilities.map((found) => category(found, report.findings))),
    report.skipped.length > 0 && section("Skipped, and not counted as withstood", h("ul", {}, report.skipped.map((skip) => h("li", { text: `${skip.what}: ${skip.why}` })))));
}

function complain(text) {
  byId("message").hidden = !text;
  byId("message").textContent = text;
}

async function load() {
  try {
    if (!id) {
      const newest = (await api.runs()).find((run) => run.isRedteam);
      if (!newest) throw new Error("no red team is stored; run one with `sandcove redteam run`");
      id = newest.evalId;
    }
    const report = await api.report(id);
    // Changes of other runs leave what a reader has opened.
    if (JSON.stringify(report) !== drawn) draw(report);
    drawn = JSON.stringify(report);
    complain("");
  } catch (error) {
    complain(error.message);
  }
}

await load();
// Results of a run that goes on, and ratings.
listen(load);
