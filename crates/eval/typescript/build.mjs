// Builds `dist`. With `--check`, fails when `dist` is not what the sources give.
import { build } from "esbuild";
import { licenses, write } from "../../../xtask/dist.mjs";

const PACKAGES = ["sucrase", "ts-interface-checker", "lines-and-columns", "@jridgewell/gen-mapping", "@jridgewell/sourcemap-codec",
  "@jridgewell/trace-mapping", "@jridgewell/resolve-uri"];

const options = { bundle: true, minify: true, write: false, format: "cjs", platform: "node", target: ["node18"], logLevel: "warning", legalComments: "none" };
const { outputFiles } = await build({ ...options, entryPoints: ["entry.mjs"] });
await write({ "transform.js": outputFiles[0].text, "licenses.txt": await licenses(PACKAGES) });
