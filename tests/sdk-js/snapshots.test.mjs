// Snapshots, forks and pauses through the JavaScript SDK.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { Sandbox } from 'e2b'

describe('what outlasts processes', () => {
  let sandbox
  const sandboxes = []
  const keep = (made) => {
    sandboxes.push(made)
    return made
  }
  before(async () => {
    sandbox = keep(await Sandbox.create({ timeoutMs: 600_000 }))
    await sandbox.files.write('kept', 'by all')
  })
  after(() => Promise.all(sandboxes.map((made) => made.kill())))

  test('a snapshot is made, listed, used and deleted', async () => {
    const snapshot = await sandbox.createSnapshot()
    assert.deepEqual(snapshot.names, [])
    const listed = await sandbox.listSnapshots().nextItems()
    assert.deepEqual(listed.map((one) => one.snapshotId), [snapshot.snapshotId])
    const other = keep(await Sandbox.create(snapshot.snapshotId, { timeoutMs: 600_000 }))
    assert.equal(await other.files.read('kept'), 'by all')
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  })

  test('forks live on their own', async () => {
    const forks = (await sandbox.fork({ count: 2, timeoutMs: 600_000 })).map(keep)
    assert.equal(new Set([sandbox, ...forks].map((one) => one.sandboxId)).size, 3)
    await forks[0].files.write('kept', 'by one')
    assert.equal(await forks[1].files.read('kept'), 'by all')
    assert.equal(await sandbox.files.read('kept'), 'by all')
  })

  test('a pause keeps memory or only files', async () => {
    const { pid } = await sandbox.commands.run('sleep 1000', { background: true })
    const runs = async () => (await sandbox.commands.list()).some((process) => process.pid === pid)
    await sandbox.pause()
    await sandbox.connect({ timeoutMs: 600_000 })
    assert.equal(await runs(), true)
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    assert.equal(await sandbox.pause({ keepMemory: false }), false)
    assert.equal((await sandbox.getInfo()).state, 'paused')
    await sandbox.connect({ timeoutMs: 600_000 })
    assert.equal(await runs(), false)
    assert.equal(await sandbox.files.read('kept'), 'by all')
  })
})
