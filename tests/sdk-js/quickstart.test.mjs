// What a person tries first with the JavaScript packages; the server is found through the environment alone.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, describe, test } from 'node:test'

import { Sandbox as Interpreter } from '@e2b/code-interpreter'
import { CommandExitError, NotFoundError, Sandbox, SandboxNotFoundError } from 'e2b'

describe('code interpreter', () => {
  let sandbox
  before(async () => {
    sandbox = await Interpreter.create({ timeoutMs: 1_200_000 })
  })
  after(() => sandbox.kill())

  test('code keeps its state', async () => {
    await sandbox.runCode('x = 41')
    assert.equal((await sandbox.runCode('x + 1')).text, '42')
  })

  test('a figure comes back as png', async () => {
    const execution = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()')
    assert.equal(execution.error, undefined)
    assert.ok(execution.results.some((result) => result.png?.startsWith('iVBORw0KGgo')))
  })

  test('an exception is a result, not a failure', async () => {
    const { error } = await sandbox.runCode('1/0')
    assert.equal(error.name, 'ZeroDivisionError')
  })

  test('output is streamed to callbacks', async () => {
    const out = []
    const errors = []
    await sandbox.runCode("import sys\nprint('out')\nprint('err', file=sys.stderr)", {
      onStdout: (message) => out.push(message.line),
      onStderr: (message) => errors.push(message.line),
    })
    // A line may come in pieces.
    assert.deepEqual([out.join(''), errors.join('')], ['out\n', 'err\n'])
  })
})

describe('sandbox', () => {
  let sandbox
  before(async () => {
    sandbox = await Sandbox.create({ timeoutMs: 1_200_000 })
  })
  after(() => sandbox.kill())

  test('files are written, read and listed', async () => {
    await sandbox.files.write('/home/user/hello.txt', 'hello, wörld')
    assert.equal(await sandbox.files.read('/home/user/hello.txt'), 'hello, wörld')
    const names = (await sandbox.files.list('/home/user')).map((entry) => entry.name)
    assert.ok(names.includes('hello.txt'))
  })

  test('five megabytes come back unchanged', async () => {
    const data = randomBytes(5 * 1024 * 1024)
    await sandbox.files.write('blob', data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
    const back = await sandbox.files.read('blob', { format: 'bytes' })
    assert.ok(Buffer.from(back).equals(data))
  })

  test('an empty file is empty', async () => {
    await sandbox.files.write('empty', '')
    assert.equal(await sandbox.files.read('empty'), '')
  })

  test('a command knows it is in a sandbox', async () => {
    assert.equal((await sandbox.commands.run('echo $E2B_SANDBOX')).stdout, 'true\n')
  })

  test('an exit code raises', async () => {
    await assert.rejects(sandbox.commands.run('exit 3'), (error) => {
      assert.ok(error instanceof CommandExitError)
      assert.equal(error.exitCode, 3)
      return true
    })
  })

  test('a missing file is not found', async () => {
    await assert.rejects(sandbox.files.read('nothing'), NotFoundError)
  })

  test('a background command is listed, fed and killed', async () => {
    const command = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(command.pid, 'ping\n')
    assert.ok((await sandbox.commands.list()).some((process) => process.pid === command.pid))
    assert.equal(await sandbox.commands.kill(command.pid), true)
    // The signal is sent before the command has ended.
    await assert.rejects(command.wait())
    assert.equal(await sandbox.commands.kill(command.pid), false)
  })
})

test('a killed sandbox is not found', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 })
  assert.equal(await sandbox.isRunning(), true)
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
  assert.equal(await sandbox.isRunning(), false)
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
})

test('an unknown template is not found', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /template 'no-such-template' not found/)
})
