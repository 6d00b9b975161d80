// The same few steps for every JavaScript release from 2.7 on; says on one line what worked.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const steps = []
const sandbox = await Sandbox.create({ timeoutMs: 60_000 })
let killed
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
  for (let i = 0; i < 100 && events.length === 0; i++) await new Promise((resolve) => setTimeout(resolve, 20))
  assert.ok(events.length > 0)
  await watch.stop()
  steps.push('watch')
  await sandbox.setTimeout(90_000)
  assert.equal(await sandbox.isRunning(), true)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('cat g.txt')).stdout, 'text')
  steps.push('connect')
  const listed = Sandbox.list()
  const items = listed.nextItems ? await listed.nextItems() : await listed
  assert.ok(items.some((one) => one.sandboxId === sandbox.sandboxId))
  steps.push('list')
} finally {
  killed = await sandbox.kill()
}
assert.equal(killed ?? true, true) // releases before 2.30 say nothing
assert.equal(await sandbox.isRunning(), false)
steps.push('kill')
console.log('ok:', steps.join(' '))
process.exit(0)
