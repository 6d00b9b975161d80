// The table of `docs/guides/command-line.md` against the installed `@e2b/cli`: every verb has a row without an empty cell, and
// `sandcove` understands the options of each, but for those that the row names.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('node_modules/.bin/e2b', import.meta.url))
const guide = await readFile(new URL('../../docs/guides/command-line.md', import.meta.url), 'utf8')

const run = (file, args) =>
  new Promise((resolve) => {
    const env = { ...process.env, NO_UPDATE_NOTIFIER: '1', NO_COLOR: '1', COLUMNS: '200' }
    execFile(file, args, { env }, (error, stdout, stderr) => resolve({ status: error?.code ?? 0, all: stdout + stderr }))
  })

/** The lines of a section of a help text that begin something. */
const section = (help, title) =>
  (help.match(new RegExp(`^${title}:\\n((?:  .*\\n)*)`, 'm'))?.[1] ?? '').split('\n').filter((line) => /^  \S/.test(line))

/** Every verb of the official command below a path, with its other names and its options. */
async function below(path) {
  const { status, all } = await run(program, [...path, '--help'])
  assert.equal(status, 0, all)
  const groups = section(all, 'Commands').map((line) => line.trim().match(/^\S+/)[0].split('|'))
  const inner = groups.filter(([name]) => name !== 'help' || path.length === 0)
  if (inner.length === 0) return [{ name: path.join(' '), options: section(all, 'Options').map(option) }]
  const found = await Promise.all(
    inner.map(async ([name, ...others]) => {
      if (name === 'help') return [{ name, options: [] }]
      const verbs = await below([...path, name])
      return others.length > 0 && verbs.length === 1 ? verbs.map((verb) => ({ ...verb, others: others.map((other) => [...path, other]) })) : verbs
    }),
  )
  return found.flat()
}

/** The flags of a line such as `-t, --project <project-id>  specify …`, and a value if they take one. */
function option(line) {
  const usage = line.trim().split(/ {2,}/)[0]
  return { flags: usage.match(/(?<![\w-])--?[a-z][\w.-]*/g), takesValue: /[<[]/.test(usage) }
}

const rows = guide
  .slice(guide.indexOf('| `e2b` | `sandcove` |'))
  .split('\n\n')[0]
  .split('\n')
  .slice(2)
  .map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim()))
const names = (cell) => [...cell.matchAll(/`([^`]*)`/g)].map(([, name]) => name)
let verbs

before(async () => {
  verbs = await below([])
})

test('every verb of the official command has a row, and no cell is empty', () => {
  const told = rows.map(([official]) => names(official)[0])
  assert.deepEqual(told.toSorted(), verbs.map(({ name }) => name).toSorted())
  for (const row of rows) assert.deepEqual([row.length, row.filter((cell) => cell === '')], [3, []], row.join(' | '))
})

// What an option with a value may be given.
const VALUES = {
  '--format': 'json', '--state': 'running', '--order': 'asc', '--metadata': 'a=b', '--env': 'A=1', '--started-after': '2026-01-01T00:00:00Z',
  '--lifecycle.ontimeout': 'pause', '--level': 'INFO', '--limit': '5', '--timeout': '60', '--cpu-count': '2', '--memory-mb': '512', '--min-free-disk-mb': '0',
}

test('the options of the official command are understood, or the table names them', async () => {
  const missing = await Promise.all(
    verbs.map(async ({ name, options }) => {
      const [, ours, differences] = rows.find(([official]) => names(official)[0] === name)
      const verb = names(ours)[0]?.split(' ').filter((word) => !/^[A-Z]+$/.test(word))
      if (ours.startsWith('none')) return []
      const excused = names(differences).join(' ').split(' ')
      const asked = options.flatMap(({ flags, takesValue }) => flags.map((flag) => ({ flag, long: flags.at(-1), takesValue })))
      const understood = async ({ flag, long, takesValue }) => {
        if (excused.includes(long)) return true
        const { status } = await run(process.env.SANDCOVE_BIN, [...verb, flag, ...(takesValue ? [VALUES[long] ?? 'x'] : []), '--help'])
        return status === 0
      }
      const answers = await Promise.all(asked.map(understood))
      return asked.filter((_, index) => !answers[index]).map(({ flag }) => `${name} ${flag}`)
    }),
  )
  assert.deepEqual(missing.flat(), [])
})

test('short names of verbs are understood', async () => {
  const short = verbs.flatMap(({ others = [] }) => others)
  assert.ok(short.length > 10, 'the help of the official command names them')
  const answers = await Promise.all(short.map((path) => run(process.env.SANDCOVE_BIN, [...path, '--help'])))
  const unknown = short.filter((_, index) => answers[index].status !== 0).map((path) => path.join(' '))
  assert.deepEqual(unknown, [])
})
