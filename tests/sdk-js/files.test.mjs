// `files`, `git` and signed URLs through the JavaScript package.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import {
  AuthenticationError, FileNotFoundError, GitUpstreamError, InvalidArgumentError, NotEnoughSpaceError, Sandbox,
  SandboxError,
} from 'e2b'

let box
before(async () => { box = await Sandbox.create({ timeoutMs: 1_200_000 }) })
after(() => box.kill())

async function collect(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

describe('files', () => {
  const data = randomBytes(3 << 20)
  const asBuffer = () => data.buffer.slice(data.byteOffset, data.byteOffset + data.length)

  for (const useOctetStream of [true, false]) {
    test(`every kind of content, octets ${useOctetStream}`, async () => {
      await box.files.write('kind', 'zażółć 🦀', { useOctetStream })
      assert.equal(await box.files.read('kind'), 'zażółć 🦀')
      await box.files.write('kind', asBuffer(), { useOctetStream })
      assert.ok(Buffer.from(await box.files.read('kind', { format: 'bytes' })).equals(data))
      await box.files.write('kind', new Blob([data]), { useOctetStream })
      const blob = await box.files.read('kind', { format: 'blob' })
      assert.ok(Buffer.from(await blob.arrayBuffer()).equals(data))
      await box.files.write('kind', '', { useOctetStream })
      assert.equal(await box.files.read('kind'), '')
      assert.equal((await box.files.read('kind', { format: 'bytes' })).length, 0)
    })
  }

  test('streams', async () => {
    await box.files.write('streamed', new Blob([data]).stream())
    assert.ok((await collect(await box.files.read('streamed', { format: 'stream' }))).equals(data))
  })

  test('gzip on the way', async () => {
    const text = 'squeeze me '.repeat(50_000)
    await box.files.write('squeezed', text, { gzip: true })
    assert.equal(await box.files.read('squeezed', { gzip: true }), text)
    assert.equal(await box.files.read('squeezed'), text)
  })

  test('several files and metadata', async () => {
    const files = Array.from({ length: 20 }, (_, i) => ({ path: `/home/user/many/${i} ü.txt`, data: `content ${i}` }))
    const infos = await box.files.write(files, { metadata: { Author: 'me' } })
    assert.deepEqual(infos.map((info) => info.path), files.map((file) => file.path))
    for (const file of files) assert.equal(await box.files.read(file.path), file.data)
    assert.deepEqual((await box.files.getInfo(files[3].path)).metadata, { author: 'me' })
    await assert.rejects(box.files.write('bad', 'x', { metadata: { k: 'ü' } }), InvalidArgumentError)
  })

  test('list, info, rename, remove, exists, makeDir', async () => {
    assert.equal(await box.files.makeDir('tree/a/b'), true)
    assert.equal(await box.files.makeDir('tree/a/b'), false)
    await box.files.write('tree/a/b/file', '12345')
    await box.commands.run('chmod 640 a/b/file; ln -s b/file a/link', { cwd: '/home/user/tree' })
    const paths = async (depth) => (await box.files.list('tree', { depth })).map((entry) => entry.path.slice(16))
    assert.deepEqual(await paths(), ['a'])
    assert.deepEqual(await paths(2), ['a', 'a/b', 'a/link'])
    assert.deepEqual(await paths(9), ['a', 'a/b', 'a/b/file', 'a/link'])
    const info = await box.files.getInfo('tree/a/b/file')
    assert.deepEqual(
      [info.name, info.type, info.size, info.mode, info.permissions, info.owner, info.group],
      ['file', 'file', 5, 0o640, '-rw-r-----', 'user', 'user'],
    )
    assert.ok(Math.abs(Date.now() - info.modifiedTime.getTime()) < 600_000)
    assert.equal((await box.files.getInfo('tree/a/link')).symlinkTarget, '/home/user/tree/a/b/file')
    assert.equal((await box.files.rename('tree/a/b/file', 'tree/new/name')).path, '/home/user/tree/new/name')
    assert.equal(await box.files.exists('tree/a/b/file'), false)
    assert.equal(await box.files.exists('tree/new/name'), true)
    await box.files.remove('tree')
    assert.equal(await box.files.exists('tree'), false)
  })

  test('errors', async () => {
    await assert.rejects(box.files.read('nothing'), FileNotFoundError)
    await assert.rejects(box.files.read('/tmp'), InvalidArgumentError)
    await assert.rejects(box.files.list('nothing'), FileNotFoundError)
    await assert.rejects(box.files.list('/etc/passwd'), InvalidArgumentError)
    await assert.rejects(box.files.getInfo('nothing'), FileNotFoundError)
    await assert.rejects(box.files.rename('nothing', 'x'), FileNotFoundError)
    await assert.rejects(box.files.write('/tmp', 'x'), InvalidArgumentError)
    await assert.rejects(box.files.write('/etc/passwd/x', 'x'), SandboxError)
    await assert.rejects(box.files.read('x', { user: 'nobody-here' }), AuthenticationError)
    await assert.rejects(box.files.watchDir('nothing', () => {}), FileNotFoundError)
    await assert.rejects(box.files.write('/dev/shm/big', new Blob([Buffer.alloc(300 << 20)])), NotEnoughSpaceError)
    await box.commands.run('rm -f /dev/shm/*')
  })

  test('watching', async () => {
    await box.files.makeDir('watched/sub')
    const events = []
    let exits = 0
    const handle = await box.files.watchDir('watched', (event) => { events.push(event) }, {
      recursive: true, includeEntry: true, onExit: () => { exits += 1 },
    })
    await box.files.write('watched/sub/new', '12345')
    for (let i = 0; i < 3000 && events.length < 3; i++) await sleep(20)
    await sleep(150)
    assert.deepEqual(events.map((event) => [event.type, event.name]), [
      ['create', 'sub/new'], ['chmod', 'sub/new'], ['write', 'sub/new'],
    ])
    assert.deepEqual([events[2].entry.path, events[2].entry.size], ['/home/user/watched/sub/new', 5])
    await handle.stop()
    await box.files.write('watched/later', 'x')
    for (let i = 0; i < 3000 && exits === 0; i++) await sleep(20)
    await sleep(150)
    assert.deepEqual([events.length, exits], [3, 1])
  })
})

test('signed URLs', async () => {
  const upload = await box.uploadUrl('/home/user/signed.txt', { useSignatureExpiration: 60_000 })
  const form = new FormData()
  form.append('file', new Blob(['signed']), 'ignored')
  assert.equal((await fetch(upload, { method: 'POST', body: form })).status, 200)
  assert.equal(await (await fetch(await box.downloadUrl('/home/user/signed.txt'))).text(), 'signed')
  const expired = await fetch(await box.downloadUrl('/home/user/signed.txt', { useSignatureExpiration: -10_000 }))
  assert.equal(expired.status, 401)
  assert.deepEqual(await expired.json(), { code: 401, message: 'signature is already expired' })
  const missing = await fetch(await box.downloadUrl('/home/user/demo/test.txt'))
  assert.deepEqual(await missing.json(), { code: 404, message: "path '/home/user/demo/test.txt' does not exist" })
})

test('git against a bare repository', async () => {
  const me = { authorName: 'Me', authorEmail: 'me@example.org' }
  await box.git.init('/tmp/origin.git', { bare: true, initialBranch: 'main' })
  await box.git.init('/tmp/tree', { initialBranch: 'main' })
  await box.files.write('/tmp/tree/README', 'first\n')
  assert.equal((await box.git.status('/tmp/tree')).hasUntracked, true)
  await box.git.add('/tmp/tree')
  await box.git.commit('/tmp/tree', 'first', me)
  await box.git.remoteAdd('/tmp/tree', 'origin', '/tmp/origin.git')
  assert.equal(await box.git.remoteGet('/tmp/tree', 'origin'), '/tmp/origin.git')
  await assert.rejects(box.git.pull('/tmp/tree'), GitUpstreamError)
  await box.git.push('/tmp/tree', { remote: 'origin', branch: 'main' })
  await box.git.clone('/tmp/origin.git', { path: '/tmp/clone' })
  await box.git.createBranch('/tmp/clone', 'topic')
  assert.deepEqual((await box.git.branches('/tmp/clone')).currentBranch, 'topic')
  await box.git.checkoutBranch('/tmp/clone', 'main')
  await box.git.deleteBranch('/tmp/clone', 'topic')
  await box.files.write('/tmp/clone/README', 'second\n')
  await box.git.restore('/tmp/clone', { paths: ['README'] })
  assert.equal(await box.files.read('/tmp/clone/README'), 'first\n')
  await box.git.configureUser('Else', 'else@example.org')
  assert.equal(await box.git.getConfig('user.name'), 'Else')
  await box.git.commit('/tmp/clone', 'empty', { allowEmpty: true })
  await box.git.push('/tmp/clone')
  await box.git.pull('/tmp/tree')
  await box.git.reset('/tmp/tree', { mode: 'hard', target: 'HEAD~1' })
  assert.equal((await box.git.status('/tmp/tree')).behind, 1)
})
