// What the evaluator calls: TypeScript becomes JavaScript with its lines where they were.
import { transform as strip } from "sucrase";

/** Sucrase leaves namespaces out, and what uses them would fail later. */
const NAMESPACE = /^[ \t]*(?:export[ \t]+)?namespace[ \t]+([\w.$]+)[ \t]*\{/m;

/** The JavaScript of a text: a CommonJS module, or a module as it is written. */
export function transform(text, path, commonjs) {
  const namespace = NAMESPACE.exec(text);
  if (namespace) throw new Error(`${path} has the namespace ${namespace[1]}: run \`npm install tsx\` beside it, or export what is in it`);
  const transforms = commonjs ? ["typescript", "imports"] : ["typescript"];
  return strip(text, { transforms, filePath: path, preserveDynamicImport: true, disableESTransforms: true }).code;
}
