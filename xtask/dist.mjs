// A `dist` that is committed, so that a build of the workspace needs no Node: of the dashboard, and of the evaluator's TypeScript. The
// working directory is the one with the `package.json`.
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";

// The licenses of packages, in one text.
export async function licenses(packages) {
  const parts = packages.map(async (name) => {
    const directory = `node_modules/${name}`;
    const { version, license } = JSON.parse(await readFile(`${directory}/package.json`, "utf8"));
    const file = (await readdir(directory)).find((entry) => /^licen[sc]e/i.test(entry));
    const words = file ? (await readFile(`${directory}/${file}`, "utf8")).trim() : "";
    return `${name} ${version} (${license})\n\n${words}\n`;
  });
  return (await Promise.all(parts)).join(`\n${"-".repeat(80)}\n\n`);
}

// Writes the files, by their names. With `--check`, fails when `dist` has others.
export async function write(files) {
  if (!process.argv.includes("--check")) {
    await mkdir("dist", { recursive: true });
    for (const [name, content] of Object.entries(files)) await writeFile(`dist/${name}`, content);
    return;
  }
  const differ = [];
  for (const [name, content] of Object.entries(files)) {
    if ((await readFile(`dist/${name}`, "utf8").catch(() => "")) !== content) differ.push(name);
  }
  if (differ.length > 0) {
    console.error(`dist is not what the sources give: ${differ.join(", ")}; run \`npm run build\` in ${process.cwd()} and commit dist`);
    process.exit(1);
  }
}
