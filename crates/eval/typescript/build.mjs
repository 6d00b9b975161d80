// Builds `dist`, which is committed, so that a build of the evaluator needs no Node. With `--check`, fails when `dist` is not what the
// sources give.
import { build } from "esbuild";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";

const PACKAGES = ["sucrase", "ts-interface-checker", "lines-and-columns", "@jridgewell/gen-mapping", "@jridgewell/sourcemap-codec",
  "@jridgewell/trace-mapping", "@jridgewell/resolve-uri"];

const options = { bundle: true, minify: true, write: false, format: "cjs", platform: "node", target: ["node18"], logLevel: "warning", legalComments: "none" };
const { outputFiles } = await build({ ...options, entryPoints: ["entry.mjs"] });
const files = { "transform.js": outputFiles[0].text, "licenses.txt": await licenses(PACKAGES) };

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

if (process.argv.includes("--check")) {
  const differ = [];
  for (const [name, content] of Object.entries(files)) {
    if ((await readFile(`dist/${name}`, "utf8").catch(() => "")) !== content) differ.push(name);
  }
  if (differ.length > 0) {
    console.error(`dist is not what the sources give: ${differ.join(", ")}; run \`npm run build\` in crates/eval/typescript and commit dist`);
    process.exit(1);
  }
} else {
  await mkdir("dist", { recursive: true });
  for (const [name, content] of Object.entries(files)) await writeFile(`dist/${name}`, content);
}
