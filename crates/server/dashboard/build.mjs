// Builds `dist`. With `--check`, fails when `dist` is not what the sources give.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";
import { readFile } from "node:fs/promises";
import { licenses, write } from "../../../xtask/dist.mjs";

const MAX_COMPRESSED = 300_000;

const options = { bundle: true, minify: true, write: false, target: ["es2022"], logLevel: "warning", legalComments: "none" };
const script = (entry) => build({ ...options, entryPoints: [entry], format: "esm", jsx: "automatic", jsxImportSource: "preact", external: ["/dashboard/*"] });
const text = async (result) => (await result).outputFiles[0].text;

const files = {
  "app.js": await text(script("src/main.tsx")),
  "terminal.js": await text(script("src/terminal/main.ts")),
  "app.css": await text(build({ ...options, entryPoints: ["src/app.css"] })),
  "licenses.txt": await licenses(["preact", "wouter-preact", "regexparam", "@xterm/xterm", "@xterm/addon-fit"]),
  "index.html": await readFile("src/index.html", "utf8"),
  "frame.html": await readFile("src/frame.html", "utf8"),
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
