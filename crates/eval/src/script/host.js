// Runs the user's JavaScript for the evaluator: one call at a time, a line of JSON each way. Calls come on descriptor 3 and
// replies leave on 4, so that nothing the user's code prints can be taken for a reply. A file stays loaded until its text changes.
'use strict'
const fs = require('node:fs')
const net = require('node:net')
const path = require('node:path')
const Module = require('node:module')
const { pathToFileURL } = require('node:url')

const { createRequire } = Module

class NotFound extends Error {}

const modules = new Map()
const providers = new Map()
const inlines = new Map()

const isTypeScript = (file) => /\.[cm]?tsx?$/.test(file)

/** What turns TypeScript into JavaScript. The evaluator sends it before the first call of such a file. */
let typescript

function receiveTypeScript({ transform: text, hooks }) {
  const module = { exports: {} }
  new Function('module', 'exports', text)(module, module.exports)
  typescript = { transform: module.exports.transform, text, hooks }
}

/** Lets `require` load TypeScript: by `tsx` if the user's project has it, which also knows the paths of its `tsconfig.json`. */
function requireTypeScript(file) {
  if (typescript.required) return
  typescript.required = true
  try {
    return createRequire(file)('tsx/cjs/api').register()
  } catch {}
  for (const extension of ['.ts', '.tsx', '.cts', '.mts']) {
    Module._extensions[extension] = (module, path) => {
      module._compile(typescript.transform(fs.readFileSync(path, 'utf8'), path, true), path)
    }
  }
  const resolve = Module._resolveFilename
  Module._resolveFilename = function (request, ...rest) {
    try {
      return resolve.call(this, request, ...rest)
    } catch (error) {
      // TypeScript says `.js` for the file that `.ts` becomes.
      const other = request.replace(/^(\.{1,2}\/.*)\.([cm]?)jsx?$/, '$1.$2ts')
      if (other === request) throw error
      return resolve.call(this, other, ...rest)
    }
  }
}

/** The exports of a file of TypeScript: a CommonJS module, unless it uses what only other modules may. */
async function loadTypeScript(file, text, url) {
  if (!file.endsWith('.mts') && !/\bimport\.meta\b/.test(text)) {
    requireTypeScript(file)
    try {
      return createRequire(file)(file)
    } catch (error) {
      const ofModules = error.code === 'ERR_REQUIRE_ESM' || (error instanceof SyntaxError && /\bawait\b/.test(error.message))
      if (!ofModules) throw error
    }
  }
  if (!typescript.registered) {
    typescript.registered = true
    Module.register(`data:text/javascript,${encodeURIComponent(typescript.hooks)}`, { data: { text: typescript.text } })
  }
  return import(url)
}

async function load(file) {
  let text
  try {
    text = fs.readFileSync(file, 'latin1')
  } catch (error) {
    throw new NotFound(`cannot read ${file}: ${error.code}`)
  }
  const known = modules.get(file)
  if (known && known.text === text) return known.exports
  const version = (known?.version ?? 0) + 1
  delete require.cache[fs.realpathSync(file)]
  const url = pathToFileURL(file).href + (known ? `?version=${version}` : '')
  const exports = isTypeScript(file) ? await loadTypeScript(file, text, url) : await import(url)
  modules.set(file, { text, version, exports })
  return exports
}

const configurations = new Map()

/** What a configuration's file exports, or what the function that it exports returns. */
async function configuration(file) {
  const exports = await load(file)
  const { version } = modules.get(file)
  let known = configurations.get(file)
  if (known?.version !== version) {
    const found = main(exports)
    known = { version, value: await (typeof found === 'function' ? found() : found) }
    configurations.set(file, known)
  }
  return known.value
}

/** A configuration without its functions and providers: each is the reference by which it can be called. */
function written(value, at, file) {
  const reference = `file://${file}:@${at.join('.')}`
  if (typeof value === 'function') {
    return at[0] === 'providers' && at.length === 2 ? { id: reference, label: value.label ?? `custom-function-${at[1]}` } : reference
  }
  if (value === null || typeof value !== 'object') return value
  if (typeof value.callApi === 'function') {
    return at.at(-1) === 'provider' ? reference : { id: reference, label: value.label ?? (typeof value.id === 'function' ? value.id() : value.id) }
  }
  if (Array.isArray(value)) return value.map((each, index) => written(each, [...at, index], file))
  if (typeof value.toJSON === 'function') return value
  const { function: prompt, ...rest } = value
  const whole = typeof prompt === 'function' && at[0] === 'prompts' ? { ...rest, raw: prompt, label: rest.label ?? prompt.name } : value
  const entries = Object.entries(whole).map(([key, each]) => {
    const place = whole !== value && key === 'raw' ? 'function' : key
    return [key, written(each, [...at, place], file)]
  })
  return Object.fromEntries(entries)
}

async function readConfiguration({ path: file }) {
  const value = await configuration(file)
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new Error(`${file} must export a configuration: an object, or a function that returns one`)
  }
  return written(value, [], file)
}

/** The tests that a file exports, or that its function returns. */
async function readTests({ path: file }) {
  return written(await configuration(file), [], file)
}

/** The function or provider that a reference means, or the export of a name. */
async function referred(file, exports, name) {
  if (!name.startsWith('@')) return named(exports, name)
  return name.slice(1).split('.').reduce((value, key) => value?.[key], await configuration(file))
}

/** An export by name, also of a CommonJS module, or undefined. */
function named(exports, name) {
  return exports[name] ?? exports.default?.[name] ?? exports.default?.default?.[name]
}

/** What the module is about when nobody named an export. */
function main(exports) {
  const main = exports.default ?? exports
  return typeof main !== 'function' && main?.default !== undefined ? main.default : main
}

async function callFunction({ path: file, name, default: defaults, arguments: given }) {
  const exports = await load(file)
  let found = name ? await referred(file, exports, name) : main(exports)
  // A module that is one function answers to any name: `file://hook.js:extensionHook` with `module.exports = extensionHook`. The name
  // of an assertion is the check that was meant, and no other one grades in its place.
  const meant = defaults.includes('get_assert') || name?.startsWith('@')
  if (name && typeof found !== 'function' && !meant) found = main(exports)
  if (!name && typeof found !== 'function') {
    const fallback = defaults.map((each) => named(exports, each)).find((each) => typeof each === 'function')
    // A file of nothing but data is its own answer where no function is expected.
    if (!fallback && defaults.length === 0) return found
    found = fallback
  }
  if (typeof found !== 'function') {
    throw new NotFound(name ? `${file} does not export a function \`${name}\`` : `${file} exports no function`)
  }
  return found(...given)
}

/** Sets on a provider what the configuration says of it. A label of its own stays. */
function describe(provider, { label, delay, transform }) {
  if (provider === null || typeof provider !== 'object' || !Object.isExtensible(provider)) return
  Object.assign(provider, { transform: transform ?? undefined, delay: delay ?? 0 })
  provider.label ||= label ?? ''
}

/** The object or function that a file provides, made once for its options and what is set on it. */
async function provided({ path: file, name, default: method, options, set }) {
  const exports = await load(file)
  const key = JSON.stringify([file, modules.get(file).version, name ?? null, options, set])
  let found = providers.get(key)
  if (found) return found
  found = name ? await referred(file, exports, name) : main(exports)
  if (!name && typeof found !== 'function' && typeof found?.[method] !== 'function') found = named(exports, method)
  if (typeof found === 'function' && (/^class\b/.test(String(found)) || found.prototype?.callApi)) {
    found = new found(options)
    describe(found, set ?? {})
    providers.set(key, found)
  }
  return found
}

/** The cache that providers share while their process runs, as promptfoo's: times to live are in milliseconds. */
const kept = new Map()
const cache = {
  async get(key) {
    const entry = kept.get(key)
    if (entry && entry.until > Date.now()) return entry.value
    kept.delete(key)
  },
  async set(key, value, ttl) {
    kept.set(key, { value, until: ttl ? Date.now() + ttl : Infinity })
    return value
  },
  async del(key) {
    return kept.delete(key)
  },
  async clear() {
    kept.clear()
    return true
  },
  async wrap(key, make, ttl) {
    return (await cache.get(key)) ?? cache.set(key, await make(), ttl)
  },
}

/** Adds to the context of a provider what JSON cannot carry: a log, the cache, the suite's filters, and the provider that the row is of. */
function equip(context, found, method) {
  context.logger = { debug() {}, info: console.log, warn: console.warn, error: console.error }
  context.getCache = () => cache
  const filters = Object.entries(context.filters ?? {})
  context.filters = Object.fromEntries(filters.map(([name, text]) => [name, (...given) => filter(text)(...given)]))
  const original = context.originalProvider
  if (original === undefined) return
  if (original === null) {
    context.originalProvider = found
    return
  }
  // Only the provider that is called is in this process.
  original.callApi = async () => ({ error: `\`originalProvider.${method}\` is not available to scripts; use \`sequence\`, or call the service` })
  revive([undefined, { provider: original }])
}

const filtersMade = new Map()

/** The function of a filter of the suite, from the text of its module. */
function filter(text) {
  let made = filtersMade.get(text)
  if (!made) {
    const module = { exports: {} }
    new Function('module', 'exports', 'require', text)(module, module.exports, createRequire(path.join(process.cwd(), 'filter.js')))
    made = module.exports.default ?? module.exports
    filtersMade.set(text, made)
  }
  return made
}

async function callProvider(call) {
  const { path: file, default: method, options } = call
  const found = await provided(call)
  if (method === 'id') return typeof found?.id === 'function' ? found.id() : null
  const itself = typeof found === 'function' && (method === 'callApi' || found.name === method)
  const called = typeof found?.[method] === 'function' ? found[method] : itself ? found : undefined
  if (!called) {
    throw new NotFound(`${file} exports no provider: export a class with a method \`${method}\`, or a function \`${method}\``)
  }
  const [prompt, context, rest] = call.arguments
  if (context && typeof context === 'object') equip(context, found, method)
  // `callApi({ prompt, vars })` takes one object, `callApi(prompt, context)` takes them apart.
  const takesObject = /^(async\s+)?(function\b[^(]*)?\w*\s*\(\s*\{/.test(String(called))
  const given = takesObject
    ? [{ prompt, vars: context?.vars ?? {}, context, options: { ...options, ...rest } }]
    : [prompt, context, rest]
  return called.apply(found, given)
}

async function callInline({ code, parameters, arguments: given }) {
  const key = JSON.stringify([parameters, code])
  let body = inlines.get(key)
  if (!body) {
    const text = code.trimEnd()
    const source = text.includes('\n') ? text : `return ${text}`
    body = new Function(...parameters, 'require', source)
    inlines.set(key, body)
  }
  return body(...given, createRequire(path.join(process.cwd(), 'inline.js')))
}

// What inline code of suites finds packages with.
process.mainModule ??= { require: createRequire(path.join(process.cwd(), 'inline.js')) }

const operations = { function: callFunction, provider: callProvider, inline: callInline, configuration: readConfiguration, tests: readTests, typescript: receiveTypeScript }

/** Scripts know a provider's id as a method. Functions of prompts, whose context is all that they get, know it as a text. */
function revive(given) {
  given.forEach((each, at) => {
    const provider = each?.$provider ?? (at > 0 ? each?.provider : undefined)
    const id = provider?.id
    if (typeof id === 'string') provider.id = Object.assign(() => id, { toString: () => id, toJSON: () => id })
    if (each?.$provider) given[at] = provider
  })
  return given
}

async function answer(line) {
  const call = JSON.parse(line)
  try {
    revive(call.arguments ?? [])
    const value = await operations[call.op](call)
    return JSON.stringify({ value: value === undefined || typeof value === 'function' ? null : value })
  } catch (error) {
    const message = error instanceof Error ? (error.message || error.name) : String(error)
    const kind = error instanceof NotFound ? 'not_found' : 'raised'
    return JSON.stringify({ error: { kind, message, traceback: error?.stack ?? message } })
  }
}

function reply(text) {
  let bytes = Buffer.from(text + '\n')
  while (bytes.length > 0) bytes = bytes.subarray(fs.writeSync(4, bytes))
}

// Printing goes out before the reply does: pipes are written at once.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true)
// A promise that nobody awaited is the user's mistake, and not a reason to lose the worker.
process.on('unhandledRejection', (error) => console.error('unhandled rejection:', error))

let waiting = Promise.resolve()
let buffer = ''
const calls = new net.Socket({ fd: 3, readable: true, writable: false })
calls.setEncoding('utf8')
calls.on('data', (text) => {
  buffer += text
  let end
  while ((end = buffer.indexOf('\n')) >= 0) {
    const line = buffer.slice(0, end)
    buffer = buffer.slice(end + 1)
    waiting = waiting.then(() => answer(line)).then(reply)
  }
})
calls.on('close', () => process.exit(0))
reply('{"ready": true}')
