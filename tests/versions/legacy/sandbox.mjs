// What programs for `e2b` 0.12 to 0.16 do with a sandbox; says on one line what worked.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const steps = []
const DEADLINE = Date.now() + 120_000
const pause = () => new Promise((resolve) => setTimeout(resolve, 20))
async function until(condition) {
  while (!(await condition())) {
    assert.ok(Date.now() < DEADLINE, 'nothing came of it')
    await pause()
  }
}
const run = async (sandbox, options) => await (await sandbox.process.start(options)).wait()

let sandbox = await Sandbox.create({ template: 'base', metadata: { purpose: 'smoke' }, envVars: { ALL: 'yes' }, onStdout: () => {} })
try {
  steps.push('create')
  const listed = (await Sandbox.list()).find((one) => sandbox.id.startsWith(one.sandboxID))
  assert.deepEqual(listed.metadata, { purpose: 'smoke' })
  steps.push('list')

  const lines = []
  const process_ = await sandbox.process.start({
    cmd: 'echo out; echo err >&2; printf last; exit 3',
    onStdout: (message) => lines.push(message.line),
    onStderr: (message) => lines.push(message.line),
  })
  const output = await process_.wait()
  assert.deepEqual([output.stdout, output.stderr, output.exitCode], ['out\nlast', 'err', 3])
  assert.deepEqual(lines.sort(), ['err', 'last', 'out'])
  assert.equal((await run(sandbox, 'whoami; pwd')).stdout, 'user\n/home/user')
  assert.equal((await run(sandbox, { cmd: 'echo $ALL $ONE', envVars: { ONE: '1' } })).stdout, 'yes 1')
  assert.equal((await run(sandbox, { cmd: 'pwd', cwd: '/tmp' })).stdout, '/tmp')
  const many = Array.from({ length: 20_000 }, (_, index) => index + 1).join('\n')
  assert.equal((await run(sandbox, 'seq 20000')).stdout, many)
  await assert.rejects(sandbox.process.start({ cmd: 'true', cwd: '/no/such' }), /no such|doesn't exist/i)
  steps.push('process')

  const cat = await sandbox.process.start('while read line; do echo got $line; done')
  for (const number of [0, 1, 2]) await cat.sendStdin(`${number}\n`)
  await until(() => cat.output.stdout === 'got 0\ngot 1\ngot 2')
  await cat.kill()
  await cat.wait()
  steps.push('stdin kill')

  const files = sandbox.filesystem
  await files.makeDir('/home/user/a/b')
  await files.write('/home/user/a/b/t.txt', 'tëxt\n')
  assert.equal(await files.read('a/b/t.txt'), 'tëxt\n')
  const bytes = Uint8Array.from({ length: 256 }, (_, index) => index)
  await files.writeBytes('/home/user/a/bytes', bytes)
  assert.deepEqual(Uint8Array.from(await files.readBytes('/home/user/a/bytes')), bytes)
  const entries = (await files.list('/home/user/a')).map((one) => [one.name, one.isDir]).sort()
  assert.deepEqual(entries, [['b', true], ['bytes', false]])
  await files.remove('/home/user/a/b')
  await assert.rejects(files.read('/no/such'), /no such file or directory/)
  const large = '0123456789abcdef'.repeat(1 << 20)
  await files.write('/tmp/large', large)
  assert.equal(await files.read('/tmp/large'), large)
  steps.push('files')

  const events = []
  const watcher = files.watchDir('/home/user/a')
  watcher.addEventListener((event) => events.push(event))
  await watcher.start()
  await files.write('/home/user/a/new', '1')
  await until(() => ['Create', 'Write'].every((wanted) => events.some((one) => one.operation === wanted && one.name === 'new')))
  assert.ok(events.every((one) => one.path === '/home/user/a/new' && one.isDir === false))
  await watcher.stop()
  steps.push('watch')

  let data = ''
  const terminal = await sandbox.terminal.start({ onData: (text) => (data += text), size: { cols: 80, rows: 24 }, cmd: 'stty size; read x; stty size' })
  await until(() => data.includes('24 80'))
  await terminal.resize({ cols: 100, rows: 30 })
  await terminal.sendData('\n')
  await terminal.wait()
  assert.match(data, /30 100/)
  const shell = await sandbox.terminal.start({ onData: (text) => (data += text), size: { cols: 80, rows: 24 } })
  await shell.sendData('echo $TERM-$((20+22))\n')
  await until(() => data.includes('xterm-42'))
  await shell.kill()
  await shell.wait()
  steps.push('terminal')

  const content = Buffer.alloc(700_000, '\x00\xffbytes', 'latin1')
  assert.equal(await sandbox.uploadFile(content, 'up load.bin'), '/home/user/up load.bin')
  assert.deepEqual(await sandbox.downloadFile('/home/user/up load.bin', 'buffer'), content)
  await assert.rejects(sandbox.downloadFile('/no/such'), /Failed to download/)
  steps.push('upload download')

  await sandbox.process.start('python3 -m http.server 8765 --directory /tmp')
  const url = `${sandbox.getProtocol()}://${sandbox.getHostname(8765)}/`
  await until(async () => (await fetch(url)).ok)
  steps.push('port')

  await sandbox.process.start('echo $$ > /tmp/pid; exec sleep 600')
  await until(async () => (await files.list('/tmp')).some((one) => one.name === 'pid'))
  await sandbox.keepAlive(300_000)
  await sandbox.close()
  const ports = []
  sandbox = await Sandbox.reconnect({ sandboxID: sandbox.id, cwd: '/home/user/made', onScanPorts: (found) => ports.push(...found) })
  await until(async () => (await run(sandbox, 'kill -0 $(cat /tmp/pid) 2>/dev/null && echo alive; true')).stdout === '')
  assert.equal((await run(sandbox, 'pwd')).stdout, '/home/user/made')
  await sandbox.process.start('python3 -m http.server 8766')
  await until(() => ports.some((one) => one.port === 8766 && one.state === 'LISTEN'))
  steps.push('close reconnect ports')
} finally {
  // The first releases kill nothing: their sandboxes end when nobody refreshes them.
  if (Sandbox.kill) await Sandbox.kill(sandbox.id)
  await sandbox.close()
}
if (Sandbox.kill) {
  assert.ok(!(await Sandbox.list()).some((one) => sandbox.id.startsWith(one.sandboxID)))
  steps.push('kill')
}
console.log('ok:', steps.join(' '))
process.exit(0)
