// `commands` and `pty` through the JavaScript package: every method, the errors it documents, and many at once.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import {
  AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError, TimeoutError,
} from 'e2b'

async function until(condition, what, deadlineMs = 60_000) {
  const end = Date.now() + deadlineMs
  while (!(await condition())) {
    assert.ok(Date.now() < end, `${what} did not come true`)
    await sleep(20)
  }
}

const exits = (exitCode, more = {}) => (error) => {
  assert.ok(error instanceof CommandExitError, String(error))
  assert.equal(error.exitCode, exitCode)
  for (const [key, value] of Object.entries(more)) assert.equal(error[key], value)
  return true
}

describe('commands', () => {
  let box
  before(async () => { box = await Sandbox.create({ timeoutMs: 1_200_000 }) })
  after(() => box.kill())

  test('output, exit code and callbacks', async () => {
    const out = []
    const err = []
    const result = await box.commands.run('echo out; echo err >&2', {
      onStdout: (text) => out.push(text), onStderr: (text) => err.push(text),
    })
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
    assert.deepEqual([out.join(''), err.join('')], ['out\n', 'err\n'])
    await assert.rejects(
      box.commands.run('echo out; echo err >&2; exit 3'),
      exits(3, { stdout: 'out\n', stderr: 'err\n', error: 'exit status 3', message: 'exit status 3' }),
    )
    await assert.rejects(box.commands.run('kill -TERM $$'), exits(-1, { error: 'signal: terminated' }))
    await assert.rejects(box.commands.run('no-such-command-here'), exits(127))
  })

  test('characters split over chunks come whole', async () => {
    const text = 'zażółć 🦀 漢字\n'
    const bytes = [...Buffer.from(text)].join(',')
    const script = `import os,time\nfor b in [${bytes}]: os.write(1, bytes([b])); time.sleep(.003)`
    await box.files.write('/tmp/split.py', script)
    const seen = []
    const result = await box.commands.run('python3 /tmp/split.py', { onStdout: (piece) => { seen.push(piece) } })
    assert.equal(result.stdout, text)
    assert.equal(seen.join(''), text)
  })

  test('a hundred megabytes of output are complete', async () => {
    const size = 100 << 20
    const line = `${'0123456789abcdef'.repeat(3)}0123456789abcde\n`
    const seen = createHash('sha256')
    let length = 0
    const take = (piece) => { seen.update(piece); length += piece.length }
    await box.commands.run(`yes '${line.trim()}' | head -c ${size}`, { onStdout: take, timeoutMs: 600_000 })
    const expected = createHash('sha256')
    const block = line.repeat((1 << 20) / line.length)
    for (let i = 0; i < 100; i++) expected.update(block)
    assert.equal(length, size)
    assert.equal(seen.digest('hex'), expected.digest('hex'))
  })

  test('stdin is sent and closed', async () => {
    const command = await box.commands.run('cat', { background: true, stdin: true })
    await box.commands.sendStdin(command.pid, 'öne\n')
    await command.sendStdin(Buffer.from('two\n'))
    await command.closeStdin()
    assert.equal((await command.wait()).stdout, 'öne\ntwo\n')
    assert.equal((await box.commands.run('cat; echo end', { timeoutMs: 60_000 })).stdout, 'end\n')
  })

  test('list, kill and connect', async () => {
    const command = await box.commands.run('read x; echo $x; exit 5', {
      background: true, stdin: true, envs: { A: 'b' }, cwd: '/tmp',
    })
    const info = (await box.commands.list()).find((process) => process.pid === command.pid)
    assert.deepEqual([info.cmd, info.args[0], info.envs, info.cwd], ['/bin/bash', '-l', { A: 'b' }, '/tmp'])
    const joined = await box.commands.connect(command.pid)
    await box.commands.sendStdin(command.pid, 'said\n')
    for (const handle of [joined, command]) await assert.rejects(handle.wait(), exits(5, { stdout: 'said\n' }))
    const sleeper = await box.commands.run('sleep 600', { background: true })
    assert.equal(await sleeper.kill(), true)
    await assert.rejects(sleeper.wait(), exits(-1, { error: 'signal: killed' }))
    assert.equal(await box.commands.kill(sleeper.pid), false)
  })

  test('output that nobody read goes to the next client that connects', async () => {
    const started = await box.commands.run('sleep 0.3; echo early; read x; echo late', { background: true, stdin: true })
    await started.disconnect()
    await sleep(600)
    const joined = await box.commands.connect(started.pid)
    await box.commands.sendStdin(started.pid, '\n')
    assert.equal((await joined.wait()).stdout, 'early\nlate\n')
  })

  test('errors', async () => {
    await assert.rejects(box.commands.sendStdin(999_999, 'x'), NotFoundError)
    await assert.rejects(box.commands.closeStdin(999_999), NotFoundError)
    await assert.rejects(box.commands.connect(999_999), NotFoundError)
    assert.equal(await box.commands.kill(999_999), false)
    await assert.rejects(box.commands.run('true', { user: 'nobody-here' }), AuthenticationError)
    await assert.rejects(box.commands.run('true', { cwd: '/no/such/directory' }), InvalidArgumentError)
  })

  test('a timeout ends the command', async () => {
    await assert.rejects(box.commands.run('echo $$ > /tmp/timed; exec sleep 600', { timeoutMs: 5000 }), TimeoutError)
    const pid = (await box.files.read('/tmp/timed')).trim()
    await until(async () => !(await box.files.exists(`/proc/${pid}/stat`)), 'the end of the command')
  })

  test('users, directories and variables', async () => {
    assert.equal((await box.commands.run('whoami; pwd')).stdout, 'user\n/home/user\n')
    assert.equal((await box.commands.run('whoami; pwd', { user: 'root', cwd: '/tmp' })).stdout, 'root\n/tmp\n')
    const said = await box.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID $MINE', { envs: { MINE: 'yes' } })
    assert.equal(said.stdout, `true ${box.sandboxId} yes\n`)
  })

  test('two hundred streams at once', async () => {
    await Promise.all(Array.from({ length: 200 }, async (_, number) => {
      const patient = { timeoutMs: 300_000, requestTimeoutMs: 300_000 }
      const { stdout } = await box.commands.run(`for i in 1 2 3; do echo ${number}-$i; sleep 0.2; done`, patient)
      assert.equal(stdout, [1, 2, 3].map((i) => `${number}-${i}\n`).join(''))
    }))
    assert.deepEqual(await box.commands.list(), [])
  })

  test('a terminal', async () => {
    let said = ''
    const says = (text) => until(() => said.includes(text), `${text} in ${JSON.stringify(said)}`)
    const onData = (data) => { said += Buffer.from(data).toString() }
    const terminal = await box.pty.create({ cols: 80, rows: 24, onData, envs: { HELLO: 'there' }, cwd: '/tmp', timeoutMs: 300_000 })
    const type = (text) => box.pty.sendInput(terminal.pid, Buffer.from(text))
    await type('echo $(stty size)-$HELLO-$PWD\n')
    await says('24 80-there-/tmp')
    await box.pty.resize(terminal.pid, { cols: 132, rows: 50 })
    await type('stty size\n')
    await says('50 132')
    let alsoSaid = ''
    const joined = await box.pty.connect(terminal.pid, { onData: (data) => { alsoSaid += Buffer.from(data) }, timeoutMs: 300_000 })
    await type('echo both-$((3 * 7)); exit 4\n')
    await assert.rejects(terminal.wait(), exits(4))
    await assert.rejects(joined.wait(), exits(4))
    assert.ok(said.includes('both-21') && alsoSaid.includes('both-21'))
    assert.equal(await box.pty.kill(terminal.pid), false)
    await assert.rejects(box.pty.sendInput(999_999, Buffer.from('x')), NotFoundError)
    await assert.rejects(box.pty.resize(999_999, { cols: 1, rows: 1 }), NotFoundError)
  })

  test('a killed terminal', async () => {
    const terminal = await box.pty.create({ cols: 80, rows: 24, onData: () => {} })
    assert.equal(await box.pty.kill(terminal.pid), true)
    await assert.rejects(terminal.wait(), exits(-1))
  })
})

test('a killed sandbox ends its commands', async () => {
  const box = await Sandbox.create({ timeoutMs: 300_000 })
  const command = await box.commands.run('sleep 600', { background: true, timeoutMs: 300_000 })
  const ended = assert.rejects(command.wait(), (error) => {
    assert.ok(error instanceof TimeoutError, String(error))
    assert.match(error.message, /killed or reached its/)
    return true
  })
  await box.kill()
  await ended
  await assert.rejects(box.commands.run('true'), SandboxError)
})
