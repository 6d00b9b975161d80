// Volumes through the JavaScript package.
import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'

import { Sandbox, Volume } from 'e2b'

let volume
before(async () => { volume = await Volume.create(`test-${randomUUID()}`) })
after(() => Volume.destroy(volume.volumeId))

test('files are kept without any sandbox', async () => {
  const data = randomBytes(1 << 20)
  await volume.makeDir('/a', { mode: 0o755 })
  await volume.writeFile('/a/data', new Blob([data]))
  assert.ok(Buffer.from(await volume.readFile('/a/data', { format: 'bytes' })).equals(data))
  await volume.writeFile('/a/text', 'zażółć 🦀')
  assert.equal(await volume.readFile('/a/text'), 'zażółć 🦀')
  assert.deepEqual((await volume.list('/', { depth: 2 })).map((entry) => entry.path), ['/a', '/a/data', '/a/text'])
  await volume.remove('/a/data')
  assert.equal(await volume.exists('/a/data'), false)
})

test('a sandbox sees what was written, and leaves what it writes', async () => {
  await volume.writeFile('/greeting', 'hello')
  const box = await Sandbox.create({ timeoutMs: 600_000, volumeMounts: { '/data': volume } })
  try {
    assert.equal((await box.commands.run('cat /data/greeting')).stdout, 'hello')
    await box.files.write('/data/answer', 'hi')
  } finally {
    await box.kill()
  }
  assert.equal(await volume.readFile('/answer'), 'hi')
})
