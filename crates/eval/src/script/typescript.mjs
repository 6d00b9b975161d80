// Hooks for modules of TypeScript in Node, for files that cannot be loaded as CommonJS.
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

let transform

export function initialize({ text }) {
  const module = { exports: {} }
  new Function('module', 'exports', text)(module, module.exports)
  transform = module.exports.transform
}

/** TypeScript may leave the extension out, and may say `.js` for the file that `.ts` becomes. */
export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context)
  } catch (error) {
    if (!/^\.{1,2}\//.test(specifier)) throw error
    for (const other of [specifier.replace(/\.([cm]?)jsx?$/, '.$1ts'), `${specifier}.ts`, `${specifier}/index.ts`, `${specifier}.js`]) {
      try {
        return await next(other, context)
      } catch {}
    }
    throw error
  }
}

export async function load(url, context, next) {
  if (!/\.[cm]?tsx?(\?|$)/.test(url)) return next(url, context)
  const path = fileURLToPath(url)
  const source = transform(await readFile(path, 'utf8'), path, false)
  return { format: 'module', source, shortCircuit: true }
}
