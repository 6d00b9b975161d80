// Memory on disk through the JavaScript SDK. The test stops the server of its data directory, so it is run apart from the others:
// `node --test memory.mjs` with SANDCOVE_BIN, SANDCOVE_TEST_DATA_DIR and SANDCOVE_TEST_CRIU, and what the server was started with.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

import { Sandbox } from '@e2b/code-interpreter'

const { SANDCOVE_BIN, SANDCOVE_TEST_DATA_DIR, SANDCOVE_TEST_CRIU, E2B_API_URL, E2B_API_KEY } = process.env
const skip = existsSync(`${SANDCOVE_TEST_CRIU}/bin/criu`) ? false : 'CRIU is not there: packaging/criu/fetch fetches it'
const execute = promisify(execFile)

async function sandcove(command) {
  const listen = new URL(E2B_API_URL).host
  const options = command === 'up' ? ['--listen', listen] : []
  const env = { ...process.env, SANDCOVE_CRIU: SANDCOVE_TEST_CRIU, SANDCOVE_PARK_AFTER: '0', SANDCOVE_API_KEY: E2B_API_KEY }
  await execute(SANDCOVE_BIN, [command, '--data-dir', SANDCOVE_TEST_DATA_DIR, ...options], { env })
}

async function until(condition, what) {
  for (const deadline = Date.now() + 120_000; !(await condition()); await sleep(50)) {
    assert.ok(Date.now() < deadline, `${what} did not come true`)
  }
}

const hasProcesses = (sandbox) => existsSync(`${SANDCOVE_TEST_DATA_DIR}/run/${sandbox.sandboxId}/jail.json`)
const isOnDisk = (sandbox) => existsSync(`${SANDCOVE_TEST_DATA_DIR}/pool/parked/${sandbox.sandboxId}/manifest.json`)

const START = `
import socket, random, uuid
counter = 41
listener = socket.create_server(("127.0.0.1", 5000))
client = socket.create_connection(("127.0.0.1", 5000))
peer, _ = listener.accept()
client.sendall(b"on its way")
file = open("/home/user/open", "w+")
file.write("unwritten ")
`
const GO_ON = `
counter += 1
received = peer.recv(99)
client.sendall(b"after")
file.write("and written"); file.flush()
(counter, received, peer.recv(99), open("/home/user/open").read())
`
const EXPECTED = "(42, b'on its way', b'after', 'unwritten and written')"

describe('memory on disk', { skip }, () => {
  const sandboxes = []
  const keep = (made) => {
    sandboxes.push(made)
    return made
  }
  const used = async () => {
    const sandbox = keep(await Sandbox.create({ timeoutMs: 1_200_000 }))
    const execution = await sandbox.runCode(START)
    assert.equal(execution.error, undefined, execution.error?.traceback)
    return sandbox
  }
  const goesOn = async (sandbox) => {
    const execution = await sandbox.runCode(GO_ON)
    assert.equal(execution.error, undefined, execution.error?.traceback)
    assert.equal(execution.text, EXPECTED)
  }
  before(async () => {
    await sandcove('down')
    await sandcove('up')
  })
  after(async () => {
    await Promise.all(sandboxes.map((made) => made.kill()))
    await sandcove('down')
  })

  test('survives a stop of the server and the end of all processes', async () => {
    const sandbox = await used()
    const ticker = await sandbox.commands.run('i=0; while true; do i=$((i+1)); echo $i > ticks; sleep 0.05; done', { background: true, timeoutMs: 0 })
    await until(() => sandbox.files.exists('ticks'), 'the first tick')
    await sandbox.pause()
    await until(() => !hasProcesses(sandbox), 'the end of the processes')
    assert.ok(isOnDisk(sandbox))
    await sandcove('down')
    await sandcove('up')
    assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
    const resumed = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_200_000 })
    await goesOn(resumed)
    assert.ok((await resumed.commands.list()).some((process) => process.pid === ticker.pid))
    const first = Number(await resumed.files.read('ticks'))
    await until(async () => Number(await resumed.files.read('ticks')) > first, 'the process that goes on')
  })

  test('forks have it, each with random numbers and a token of its own', async () => {
    const sandbox = await used()
    const forks = (await sandbox.fork({ count: 3, timeoutMs: 1_200_000 })).map(keep)
    const everyone = await Promise.all(forks.map((fork) => Sandbox.connect(fork.sandboxId, { timeoutMs: 1_200_000 })))
    const numbers = []
    for (const fork of everyone) {
      await goesOn(fork)
      numbers.push((await fork.runCode('(random.random(), uuid.uuid4())')).text)
    }
    assert.equal(new Set(numbers).size, 3)
    await goesOn(sandbox)
  })

  test('a snapshot with it is used twice', async () => {
    const sandbox = await used()
    const snapshot = await sandbox.createSnapshot()
    const copies = []
    for (const _ of [1, 2]) copies.push(keep(await Sandbox.create(snapshot.snapshotId, { timeoutMs: 1_200_000 })))
    for (const copy of copies) await goesOn(copy)
    await copies[0].runCode('counter = 1000')
    assert.equal((await copies[1].runCode('counter')).text, '42')
    await goesOn(sandbox)
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  })
})
