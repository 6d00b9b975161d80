// Builds `dist`, which is committed, so that a build of the server needs no Node. With `--check`, fails when `dist` is not what the
// sources give.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";

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
  "icon.svg": await readFile("src/icon.svg", "utf8"),
};

async function licenses(packages) {
  const parts = packages.map(async (name) => {
    const directory = `node_modules/${name}`;
    const { version, license } = JSON.parse(await readFile(`${directory}/package.json`, "utf8"));
    const file = (await readdir(directory)).find((entry) => /^licen[sc]e/i.test(entry));
    const words = file ? (await readFile(`${directory}/${file}`, "utf8")).trim() : "";
    return `${name} ${version} (${license})\n\n${words}\n`;
  });
  return (await Promise.all(parts)).join(`\n${"-".repeat(80)}\n\n`);
}

const compressed = Object.values(files).reduce((sum, content) => sum + gzipSync(content, { level: 9 }).length, 0);
if (compressed > MAX_COMPRESSED) {
  console.error(`the dashboard has ${compressed} bytes compressed; at most ${MAX_COMPRESSED}`);
  process.exit(1);
}

if (process.argv.includes("--check")) {
  const differ = [];
  for (const [name, content] of Object.entries(files)) {
    if ((await readFile(`dist/${name}`, "utf8").catch(() => "")) !== content) differ.push(name);
  }
  if (differ.length > 0) {
    console.error(`dist is not what the sources give: ${differ.join(", ")}; run \`npm run build\` in crates/server/dashboard and commit dist`);
    process.exit(1);
  }
} else {
  await mkdir("dist", { recursive: true });
  for (const [name, content] of Object.entries(files)) await writeFile(`dist/${name}`, content);
  console.log(`dist: ${compressed} bytes compressed`);
}
