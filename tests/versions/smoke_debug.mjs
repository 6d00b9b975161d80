// The few steps of a JavaScript release from before 2.7, which reaches a sandbox only in its debug mode: at fixed local
// ports, without an API. Says on one line what worked.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const steps = []
const sandbox = await Sandbox.create({ debug: true, apiKey: 'e2b_00' })
assert.equal(await sandbox.isRunning(), true)
steps.push('connect')
assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
await assert.rejects(sandbox.commands.run('exit 3'), (error) => error.exitCode === 3)
assert.equal((await sandbox.commands.run('whoami', { user: 'root' })).stdout, 'root\n')
steps.push('command')
const background = await sandbox.commands.run('cat', { background: true })
await sandbox.commands.sendStdin(background.pid, 'x')
assert.ok((await sandbox.commands.list()).some((process) => process.pid === background.pid))
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
// What @e2b/code-interpreter of that age sends.
const execution = await fetch('http://localhost:49999/execute', {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ code: '20 + 22' }),
})
assert.match(await execution.text(), /"text": ?"42"/)
steps.push('code')
console.log('ok:', steps.join(' '))
process.exit(0)
