// The same few steps for every JavaScript release; says on one line what worked. Releases before 2.7 find the server by name:
// `node --import ./by_name.mjs smoke.mjs`.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as e2b from 'e2b'

// The first ones cannot build templates.
const { Sandbox, Template } = e2b

const steps = []

async function listed() {
  const found = Sandbox.list()
  return (found.nextItems ? await found.nextItems() : await found).map((one) => one.sandboxId)
}

// Up to 1.5 ids have the client's behind them, though not in lists.
const isSame = (one, other) => one.split('-')[0] === other.split('-')[0]

// A template with a file, twice: the second time from the cache. And one that fails.
async function build() {
  const alias = `smoke-${randomUUID().slice(0, 12)}`
  const context = mkdtempSync(join(tmpdir(), 'smoke-'))
  writeFileSync(join(context, 'a.txt'), alias)
  const template = () => Template({ fileContextPath: context }).fromTemplate('base').copy('a.txt', '/opt/').runCmd('cat /opt/a.txt > note')
  try {
    const lines = []
    for (let i = 0; i < 2; i++) await Template.build(template(), { alias, onBuildLogs: (entry) => lines.push(entry.message) })
    assert.ok(lines.some((line) => line?.startsWith('CACHED [builder 2/2] RUN')), lines.join('\n'))
    const made = await Sandbox.create(alias, { timeoutMs: 300_000 })
    assert.equal((await made.commands.run('cat note')).stdout, alias)
    await made.kill()
    await assert.rejects(Template.build(template().runCmd('exit 3'), { alias }), /exit status 3/)
  } finally {
    rmSync(context, { recursive: true })
    const api = process.env.E2B_API_URL ?? `https://api.${process.env.E2B_DOMAIN}`
    await fetch(`${api}/templates/${alias}`, { method: 'DELETE', headers: { 'X-API-Key': process.env.E2B_API_KEY } })
  }
}

const sandbox = await Sandbox.create({ timeoutMs: 300_000 })
let killed, running
try {
  steps.push('create')
  assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
  await assert.rejects(sandbox.commands.run('exit 3'), (error) => error.exitCode === 3)
  steps.push('command')
  const background = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(background.pid, 'x')
  assert.equal(await sandbox.commands.kill(background.pid), true)
  steps.push('background')
  await sandbox.files.write('f.txt', 'text')
  assert.equal(await sandbox.files.read('f.txt'), 'text')
  assert.ok((await sandbox.files.list('.')).some((entry) => entry.name === 'f.txt'))
  await sandbox.files.rename('f.txt', 'g.txt')
  assert.equal(await sandbox.files.exists('f.txt'), false)
  steps.push('files')
  const events = []
  const watch = await sandbox.files.watchDir('.', (event) => events.push(event))
  await sandbox.files.write('watched', '1')
  for (let i = 0; i < 3000 && events.length === 0; i++) await new Promise((resolve) => setTimeout(resolve, 20))
  assert.ok(events.length > 0)
  await watch.stop()
  steps.push('watch')
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('cat g.txt')).stdout, 'text')
  steps.push('connect')
  await sandbox.setTimeout(900_000)
  assert.equal(await sandbox.isRunning(), true)
  if (sandbox.getInfo) {
    const info = await sandbox.getInfo()
    assert.ok(isSame(info.sandboxId, sandbox.sandboxId))
    // The first that had it did not say when the end is.
    if (info.endAt) assert.ok(info.endAt - info.startedAt > 800_000)
  }
  steps.push('timeout')
  assert.ok((await listed()).some((id) => isSame(id, sandbox.sandboxId)))
  steps.push('list')
  const pause = sandbox.pause ?? sandbox.betaPause
  if (pause) {
    const job = await sandbox.commands.run('sleep 600', { background: true })
    await pause.call(sandbox)
    assert.equal(await sandbox.isRunning(), false)
    assert.ok((await listed()).some((id) => isSame(id, sandbox.sandboxId)))
    steps.push('pause')
    const back = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await back.isRunning(), true)
    assert.ok((await back.commands.list()).some((process) => process.pid === job.pid))
    assert.equal(await back.files.read('g.txt'), 'text')
    steps.push('resume')
  }
  running = await sandbox.commands.run('sleep 600', { background: true })
} finally {
  killed = await sandbox.kill()
}
// Earlier ones pass on whatever their HTTP client says.
const [major, minor] = JSON.parse(readFileSync(new URL('node_modules/e2b/package.json', import.meta.url))).version.split('.')
const saysWhy = Number(major) > 2 || (Number(major) === 2 && Number(minor) >= 45)
await assert.rejects(running.wait(), (error) => !saysWhy || /killed or reached its end of life/.test(error.message))
steps.push('cut')
assert.equal(killed ?? true, true) // releases before 2.30 say nothing
assert.equal(await sandbox.isRunning(), false)
steps.push('kill')
if (Template) {
  await build()
  steps.push('template')
}
console.log('ok:', steps.join(' '))
process.exit(0)
