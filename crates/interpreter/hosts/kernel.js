// The JavaScript and TypeScript kernel host. It speaks the frames of `kernel::frame` on descriptor 0.
//
// A cell without top-level `await` runs as a script, whose let and const persist and cannot be declared twice. One with it
// runs through the inspector's REPL mode, which awaits. Both share one global scope. Types are stripped by sucrase and
// imports are found by acorn; without these packages a cell is plain JavaScript.
'use strict'
const fs = require('node:fs')
const inspector = require('node:inspector')
const net = require('node:net')
const path = require('node:path')
const util = require('node:util')
const vm = require('node:vm')
const { builtinModules, createRequire } = require('node:module')
const { pathToFileURL } = require('node:url')

const PACKAGES = ['/usr/local/lib/node_modules', '/usr/lib/node_modules', '/usr/share/nodejs']

const channel = {
  // Synchronous, so that the output of a cell is sent even if it never returns control.
  send(kind, payload = '') {
    const body = Buffer.isBuffer(payload) ? payload : Buffer.from(String(payload))
    let rest = Buffer.concat([Buffer.from(`${kind} ${body.length}\n`), body])
    while (rest.length > 0) {
      try {
        rest = rest.subarray(fs.writeSync(0, rest))
      } catch (error) {
        if (error.code !== 'EAGAIN') process.exit(1)
        Atomics.wait(pause, 0, 0, 1)
      }
    }
  },
}
const pause = new Int32Array(new SharedArrayBuffer(4))

for (const name of ['stdout', 'stderr']) {
  process[name].write = (chunk, encoding, callback) => {
    channel.send(name, typeof chunk === 'string' ? chunk : Buffer.from(chunk))
    const done = typeof encoding === 'function' ? encoding : callback
    if (done) process.nextTick(done)
    return true
  }
}

// === Source ===

function optional(name) {
  const places = [...(process.env.NODE_PATH || '').split(path.delimiter).filter(Boolean), ...PACKAGES]
  for (const place of places) {
    try {
      return require(path.join(place, name))
    } catch {
      continue
    }
  }
  return null
}

let packages
function tools() {
  packages ??= { acorn: optional('acorn'), sucrase: optional('sucrase') }
  return packages
}

/** Compiles a cell: the source to run, and whether it awaits. Throws a SyntaxError, which names `index.ts`. */
function prepare(code) {
  const { acorn, sucrase } = tools()
  let source = code
  if (sucrase) {
    const options = {
      transforms: ['typescript'],
      disableESTransforms: true,
      preserveDynamicImport: true,
      keepUnusedImports: true,
      filePath: 'index.ts',
    }
    try {
      source = sucrase.transform(code, options).code
    } catch (error) {
      throw Object.assign(new SyntaxError(error.message), { stack: `SyntaxError: ${error.message}` })
    }
  }
  if (!acorn) return { source, awaits: false }
  let tree
  try {
    tree = acorn.parse(source, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true })
  } catch {
    // Sloppy code may be no module; the engine decides.
    return { source, awaits: false }
  }
  return rewrite(source, tree)
}

function rewrite(source, tree) {
  const edits = []
  let awaits = false
  const visit = (node, inFunction) => {
    if (Array.isArray(node)) return node.forEach((each) => visit(each, inFunction))
    if (!node || typeof node.type !== 'string') return
    switch (node.type) {
      case 'ImportDeclaration':
        awaits = true
        edits.push([node.start, node.end, importStatement(node)])
        return
      case 'ExportNamedDeclaration':
        edits.push(node.declaration ? [node.start, node.declaration.start, ''] : [node.start, node.end, ''])
        break
      case 'ImportExpression':
        edits.push([node.start, node.start + 'import'.length, '__import'])
        break
      case 'AwaitExpression':
        awaits ||= !inFunction
        break
      case 'ForOfStatement':
        awaits ||= node.await && !inFunction
        break
    }
    const inside = inFunction || /Function|PropertyDefinition|StaticBlock/.test(node.type)
    for (const key of Object.keys(node)) {
      if (key !== 'type') visit(node[key], inside)
    }
  }
  visit(tree.body, false)
  edits.sort((a, b) => b[0] - a[0])
  for (const [start, end, text] of edits) source = source.slice(0, start) + text + source.slice(end)
  return { source, awaits }
}

function importStatement(node) {
  const from = `await __import(${JSON.stringify(node.source.value)})`
  const named = []
  let statement = ''
  for (const specifier of node.specifiers) {
    const local = specifier.local.name
    if (specifier.type === 'ImportNamespaceSpecifier') statement += `const ${local} = ${from};`
    else if (specifier.type === 'ImportDefaultSpecifier') named.push(`default: ${local}`)
    else named.push(`${JSON.stringify(specifier.imported.name ?? specifier.imported.value)}: ${local}`)
  }
  if (named.length > 0) statement += `const { ${named.join(', ')} } = ${from};`
  return statement || `${from};`
}

/** Imports as from a file in the current directory, including globally installed packages. */
async function importFromHere(specifier, options) {
  const here = path.join(process.cwd(), '/')
  try {
    const found = createRequire(here).resolve(specifier, { paths: [here, ...PACKAGES] })
    if (path.isAbsolute(found)) return import(pathToFileURL(found).href, options)
  } catch {
    // A built-in module, a URL, or a package for `import` only.
  }
  return import(specifier, options)
}

// === Running ===

const session = new inspector.Session()
session.connect()
const post = (method, parameters) =>
  new Promise((resolve, reject) => {
    session.post(method, parameters, (error, answer) => (error ? reject(error) : resolve(answer)))
  })

/** Runs a source that awaits, and returns its value. */
async function evaluate(source, name) {
  const answer = await post('Runtime.evaluate', {
    expression: `${source}\n//# sourceURL=${name}`,
    replMode: true,
    awaitPromise: true,
    objectGroup: 'cell',
  })
  const failed = answer.exceptionDetails
  const value = await local(failed ? failed.exception : answer.result)
  await post('Runtime.releaseObjectGroup', { objectGroup: 'cell' })
  if (failed) throw value
  return value
}

/** The value that an inspector's description refers to. */
async function local(remote) {
  if (remote.type === 'undefined') return undefined
  const { objectId, unserializableValue, value } = remote
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value }
  let taken
  globalThis.__take = (value) => {
    taken = value
  }
  const target = await post('Runtime.evaluate', { expression: 'globalThis' })
  await post('Runtime.callFunctionOn', {
    functionDeclaration: 'function (value) { __take(value) }',
    objectId: target.result.objectId,
    arguments: [argument],
  })
  delete globalThis.__take
  return taken
}

let interrupt = null
process.on('SIGINT', () => interrupt?.(Object.assign(new Error('execution was interrupted'), { name: 'Interrupted' })))

async function run(code, count) {
  const { source, awaits } = prepare(code)
  const name = `Cell[${count}]`
  const value = awaits
    ? evaluate(source, name)
    : new vm.Script(source, { filename: name }).runInThisContext({ breakOnSigint: true, displayErrors: false })
  const interrupted = new Promise((_resolve, reject) => {
    interrupt = reject
  })
  try {
    return await Promise.race([value, interrupted])
  } finally {
    interrupt = null
  }
}

// === Showing ===

const TYPES = {
  text: 'text/plain',
  html: 'text/html',
  svg: 'image/svg+xml',
  png: 'image/png',
  jpeg: 'image/jpeg',
  json: 'application/json',
  markdown: 'text/markdown',
  latex: 'text/latex',
  javascript: 'application/javascript',
}
const METHODS = { _toHtml: 'html', _toSvg: 'svg', _toPng: 'png', _toJpeg: 'jpeg' }

/** Helpers named after types; each passes its MIME bundle to `deliver`. */
function helpers(deliver) {
  const made = { mime: (bundle) => deliver(bundle) }
  for (const [name, type] of Object.entries(TYPES)) made[name] = (value) => deliver({ [type]: value })
  return made
}

let chosen = null
const display = {
  ...helpers((bundle) => {
    chosen = bundle
  }),
  display: () => helpers((bundle) => show(bundle, false)),
}

function show(data, main) {
  channel.send('result', JSON.stringify({ main, data }))
}

function bundleOf(value) {
  const text = util.inspect(value)
  const bundle = { 'text/plain': util.types.isNativeError(value) ? text.replace(OUR_FRAMES, '') : text }
  if (value === null || typeof value !== 'object') return bundle
  if (typeof value._toMime === 'function') return { ...bundle, ...value._toMime() }
  for (const [method, name] of Object.entries(METHODS)) {
    if (typeof value[method] === 'function') bundle[TYPES[name]] = value[method]()
  }
  return bundle
}

const OUR_FRAMES = /\n +at .*(sigintHandlersWrap|node:vm|node:inspector|\[eval\]|node:internal\/process\/task_queues).*/g

/** The lines of a stack without the frames of this host. */
function ownFrames(stack) {
  const lines = stack.split('\n')
  const ours = lines.findIndex((line) => /\((node:vm|node:inspector|\[eval\])/.test(line))
  return (ours < 0 ? lines : lines.slice(0, ours)).filter((line) => !/sigintHandlersWrap/.test(line))
}

function describe(error) {
  if (error === null || (typeof error !== 'object' && typeof error !== 'function')) {
    return { name: typeof error, value: String(error), traceback: '' }
  }
  const text = (value, otherwise) => (typeof value === 'string' ? value : otherwise)
  return {
    name: text(error.name, error.constructor?.name ?? 'Error'),
    value: text(error.message, util.inspect(error)),
    traceback: ownFrames(text(error.stack, '')).join(''),
  }
}

// === Requests ===

// In the original service a statement that sets the directory counts, so the first cell is number 2.
let count = 1

async function execute(code) {
  count += 1
  channel.send('started', count)
  chosen = null
  try {
    const value = await run(code, count)
    show(chosen ?? bundleOf(value), true)
  } catch (error) {
    channel.send('error', JSON.stringify(describe(error)))
  }
  channel.send('done')
}

const requests = {
  execute,
  env(pair) {
    const equals = pair.indexOf('=')
    process.env[pair.slice(0, equals)] = pair.slice(equals + 1)
  },
  unenv(name) {
    delete process.env[name]
  },
  cwd(directory) {
    try {
      process.chdir(directory)
    } catch {
      // A missing directory is no error.
    }
  },
}

async function serve() {
  let received = Buffer.alloc(0)
  for await (const data of new net.Socket({ fd: 0, readable: true, writable: false })) {
    received = Buffer.concat([received, data])
    for (;;) {
      const end = received.indexOf('\n')
      if (end < 0) break
      const [kind, length] = received.toString('latin1', 0, end).split(' ')
      const stop = end + 1 + Number(length)
      if (received.length < stop) break
      const payload = received.toString('utf8', end + 1, stop)
      received = received.subarray(stop)
      await requests[kind]?.(payload)
    }
  }
  process.exit(0)
}

process.on('uncaughtException', (error) => channel.send('stderr', `${util.inspect(error)}\n`))
process.on('unhandledRejection', (error) => channel.send('stderr', `${util.inspect(error)}\n`))
process.argv.length = 1
// `node -e` makes globals of the built-in modules, which would collide with the names of imports.
const KEPT = new Set(['console', 'crypto', 'process'])
for (const name of builtinModules) {
  if (Object.getOwnPropertyDescriptor(globalThis, name)?.get && !KEPT.has(name)) delete globalThis[name]
}
const here = createRequire(path.join(process.cwd(), '/'))
Object.assign(globalThis, { require: here, module: { exports: {} }, exports: {}, $$: display })
Object.defineProperty(globalThis, '__import', { value: importFromHere })
try {
  fs.writeFileSync('/proc/self/oom_score_adj', '500')
} catch {
  // The system then chooses which process to kill.
}
channel.send('hello', process.pid)
serve()
