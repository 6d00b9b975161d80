// Builds `dist`. With `--check`, fails when `dist` is not what the sources give.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { licenses, write } from "../../../xtask/dist.mjs";

const MAX_COMPRESSED = 300_000;

const options = { bundle: true, minify: true, write: false, target: ["es2022"], logLevel: "warning", legalComments: "none" };
// Pages of the viewer, in frames. What asks `sandcove view` there is another module here, of the same name.
const VIEWER = resolve("../../viewer/src/page");
const here = {
  name: "here",
  setup: (bundle) => bundle.onResolve({ filter: /^\.\/(again|api|place)\.js$/ }, ({ path, resolveDir }) => (resolveDir === VIEWER ? { path: resolve("src/viewer", path.replace(/js$/, "ts")) } : undefined)),
};
const script = (entry) => build({ ...options, entryPoints: [entry], format: "esm", jsx: "automatic", jsxImportSource: "preact", external: ["/dashboard/*"], plugins: [here] });
const style = (entry) => build({ ...options, entryPoints: [entry] });
// A page of the viewer with its files as they are bundled.
async function page(source, name) {
  const lines = (await readFile(`${VIEWER}/${source}`, "utf8")).split("\n").filter((line) => !/<(link|script|noscript)/.test(line));
  const files = `<link rel="stylesheet" href="/dashboard/assets/${name}.css">\n<script type="module" src="/dashboard/assets/${name}.js"></script>\n</head>`;
  return lines.join("\n").replace("</head>", files);
}
const text = async (result) => (await result).outputFiles[0].text;

const files = {
  "app.js": await text(script("src/main.tsx")),
  "terminal.js": await text(script("src/terminal/main.ts")),
  "viewer.js": await text(script("src/viewer/table.js")),
  "report.js": await text(script("src/viewer/report.js")),
  "app.css": await text(style("src/app.css")),
  "viewer.css": await text(style("src/viewer/table.css")),
  "report.css": await text(style("src/viewer/report.css")),
  "licenses.txt": await licenses(["preact", "wouter-preact", "regexparam", "@xterm/xterm", "@xterm/addon-fit"]),
  "index.html": await readFile("src/index.html", "utf8"),
  "frame.html": await readFile("src/frame.html", "utf8"),
  "viewer.html": await page("index.html", "viewer"),
  "report.html": await page("report.html", "report"),
  "cli.html": await readFile("src/cli.html", "utf8"),
  "icon.svg": await readFile("src/icon.svg", "utf8"),
};

const compressed = Object.values(files).reduce((sum, content) => sum + gzipSync(content, { level: 9 }).length, 0);
if (compressed > MAX_COMPRESSED) {
  console.error(`the dashboard has ${compressed} bytes compressed; at most ${MAX_COMPRESSED}`);
  process.exit(1);
}

await write(files);
console.log(`${compressed} bytes compressed`);
