// Templates through the official command line, `@e2b/cli`, which is given an address and a key by its environment.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('node_modules/.bin/e2b', import.meta.url))
const name = `cli-${randomUUID().slice(0, 8)}`
const sandboxes = []
let home, project

const e2b = (...args) =>
  new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd: project,
      env: { ...process.env, HOME: home, NO_UPDATE_NOTIFIER: '1', NO_COLOR: '1', CI: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let out = ''
    let err = ''
    child.stdout.on('data', (data) => (out += data))
    child.stderr.on('data', (data) => (err += data))
    child.on('close', (code) => resolve({ code, out, err, all: out + err }))
  })
const dockerfile = (...lines) => writeFile(join(project, 'Dockerfile'), ['FROM e2bdev/base', ...lines, ''].join('\n'))

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'home-'))
  project = await mkdtemp(join(tmpdir(), 'project-'))
  await writeFile(join(project, 'data.txt'), 'data')
})
after(async () => {
  for (const id of sandboxes) await e2b('sandbox', 'kill', id)
  await e2b('template', 'delete', '-y', name)
  await Promise.all([home, project].map((path) => rm(path, { recursive: true })))
})

test('a Dockerfile becomes a template, and the second time from the cache', async () => {
  await dockerfile('WORKDIR /srv', 'COPY data.txt copied.txt', `RUN echo ${name} > note && echo out of the step`)
  const first = await e2b('template', 'create', name, '-d', 'Dockerfile', '--ready-cmd', 'true', '--cpu-count', '1', '--memory-mb', '512')
  assert.equal(first.code, 0, first.all)
  assert.match(first.out, /\[stdout\]: out of the step/)
  assert.match(first.out, /Build finished, took/)
  const again = await e2b('template', 'create', name, '-d', 'Dockerfile', '--ready-cmd', 'true', '--cpu-count', '1', '--memory-mb', '512')
  assert.equal(again.code, 0, again.all)
  assert.match(again.out, /CACHED \[builder \d+\/\d+\] RUN/)
  assert.doesNotMatch(again.out, /Uploaded/)
})

test('a sandbox of the template', async () => {
  const created = await e2b('sandbox', 'create', '-d', name)
  assert.equal(created.code, 0, created.all)
  const id = created.out.match(/\bi[a-z0-9]{19,}\b/)?.[0]
  assert.ok(id, created.all)
  sandboxes.push(id)
  const ran = await e2b('sandbox', 'exec', id, 'cat /srv/note /srv/copied.txt; exit 7')
  assert.deepEqual([ran.code, ran.out], [7, `${name}\ndata`], ran.all)
  const info = await e2b('sandbox', 'info', id, '-f', 'json')
  assert.deepEqual([JSON.parse(info.out).cpuCount, JSON.parse(info.out).memoryMB], [1, 512], info.all)
})

test('a failed step is an error with its text', async () => {
  await dockerfile('RUN exit 9')
  const failed = await e2b('template', 'create', `${name}-bad`, '-d', 'Dockerfile')
  assert.equal(failed.code, 1)
  assert.match(failed.all, /failed to run command 'exit 9': exit status 9/)
  await e2b('template', 'delete', '-y', `${name}-bad`)
})

test('templates are listed, published and deleted', async () => {
  const listed = await e2b('template', 'list', '-f', 'json')
  assert.equal(listed.code, 0, listed.all)
  const [own] = JSON.parse(listed.out).filter((one) => one.aliases.includes(name))
  assert.deepEqual([own.public, own.cpuCount, own.memoryMB, own.buildStatus], [false, 1, 512, 'ready'])
  const table = await e2b('template', 'list')
  assert.match(table.out, new RegExp(`Private\\s+${own.templateID}\\s+${name}\\s+1\\s+512`))
  const published = await e2b('template', 'publish', '-y', name)
  assert.equal(published.code, 0, published.all)
  assert.match(published.all, new RegExp(`Published as: .*/${name}`))
  assert.match((await e2b('template', 'list')).out, new RegExp(`Public\\s+${own.templateID}`))
  assert.equal((await e2b('template', 'unpublish', '-y', name)).code, 0)
  await Promise.all(sandboxes.splice(0).map((id) => e2b('sandbox', 'kill', id)))
  const deleted = await e2b('template', 'delete', '-y', name)
  assert.equal(deleted.code, 0, deleted.all)
  assert.doesNotMatch((await e2b('template', 'list', '-f', 'json')).out, new RegExp(name))
})

test('a new project is made from names', async () => {
  const made = await e2b('template', 'init', '-n', 'my-new', '-l', 'python-sync', '-p', project)
  assert.equal(made.code, 0, made.all)
  assert.ok((await readdir(join(project, 'my-new'))).includes('template.py'))
})
