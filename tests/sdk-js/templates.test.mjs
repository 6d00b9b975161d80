// Template builds through the JavaScript package.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'

import { BuildError, Sandbox, Template, TemplateError, waitForFile, waitForPort } from 'e2b'

const mark = () => randomUUID().replaceAll('-', '')
const names = []
const boxes = []
const free = (start = 'js') => {
  names.push(`${start}-${mark().slice(0, 12)}`)
  return names.at(-1)
}
const call = (method, path, body) =>
  fetch(process.env.E2B_API_URL + path, {
    method,
    headers: { 'X-API-Key': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  })
const box = async (reference, options = {}) => {
  boxes.push(await Sandbox.create(reference, { timeoutMs: 600_000, ...options }))
  return boxes.at(-1)
}
const run = async (reference, command) => (await (await box(reference)).commands.run(command)).stdout
const build = async (template, name = free(), options = {}) => {
  const logs = []
  const info = await Template.build(template, name, { onBuildLogs: (entry) => logs.push(entry), ...options })
  const steps = (pattern) => logs.map((entry) => entry.message.match(pattern)?.[1]).filter(Boolean).map(Number)
  return { ...info, logs, ran: steps(/^\[builder (\d+)\/\d+\] [A-Z]/), cached: steps(/^CACHED \[builder (\d+)\/\d+\]/) }
}

let context
before(async () => {
  context = await mkdtemp(join(tmpdir(), 'templates-'))
  await mkdir(join(context, 'app/lib'), { recursive: true })
  await writeFile(join(context, 'a.txt'), 'a')
  await writeFile(join(context, 'app/run.sh'), '#!/bin/sh\necho ran\n')
  await chmod(join(context, 'app/run.sh'), 0o755)
  await writeFile(join(context, 'app/lib/data'), 'data')
  await symlink('run.sh', join(context, 'app/link'))
})
after(() => rm(context, { recursive: true }))
afterEach(async () => {
  await Promise.all(boxes.splice(0).map((one) => one.kill()))
  await Promise.all(names.splice(0).map((name) => call('DELETE', `/templates/${name}`)))
})

test('every kind of step', async () => {
  const template = Template({ fileContextPath: context })
    .fromTemplate('base')
    .copy('a.txt', '/opt/a/renamed', { user: 'root', mode: 0o600 })
    .copy(['a.txt', 'app/run.sh'], '/opt/b/')
    .copyItems([{ src: 'app', dest: '/opt/app' }, { src: 'app/link', dest: '/opt/followed', resolveSymlinks: true }])
    .copy('a.txt', '/opt/plain', { gzip: false })
    .setEnvs({ ONE: '1', WORDS: 'two words' })
    .setWorkdir('/srv/app')
    .runCmd(['echo "$ONE $WORDS" > seen', 'pwd >> seen', 'id -un >> seen'])
    .runCmd('id -un > /opt/root', { user: 'root' })
    .makeDir('made/deep', { mode: 0o750 })
    .makeSymlink('seen', 'link')
    .runCmd('touch one two')
    .rename('one', 'three')
    .remove(['two'], { force: true })
    .setUser('runner')
  const { templateId } = await build(template)
  const made = await box(templateId)
  const { stdout } = await made.commands.run(
    "id -un; pwd; cat seen /opt/root; sudo -n true 2>/dev/null; stat -c '%a %U %n' /opt/a/renamed /opt/b/run.sh made/deep; ls; cat /opt/app/lib/data /opt/plain; readlink /opt/app/link; /opt/followed",
  )
  assert.deepEqual(stdout.split('\n'), [
    'runner', '/srv/app', '1 two words', '/srv/app', 'user', 'root', '600 root /opt/a/renamed', '755 user /opt/b/run.sh', '750 user made/deep',
    'link', 'made', 'seen', 'three', 'dataarun.sh', 'ran', '',
  ])
})

test('what was built is taken from the cache', async () => {
  const note = mark()
  const template = () => Template({ fileContextPath: context }).fromTemplate('base').runCmd(`echo ${note} > note`).copy('app', `/opt/${note}`).runCmd('date +%s%N > when')
  const name = free()
  const first = await build(template(), name)
  assert.deepEqual([first.ran, first.cached], [[1, 2, 3], []])
  assert.ok(first.logs.some((entry) => entry.message === "Uploaded 'app'"))
  const again = await build(template(), name)
  assert.deepEqual([again.ran, again.cached], [[], [1, 2, 3]])
  assert.ok(again.logs.some((entry) => /already cached/.test(entry.message)))
  const forced = await build(Template({ fileContextPath: context }).fromTemplate('base').runCmd(`echo ${note} > note`).skipCache().copy('app', `/opt/${note}`).runCmd('date +%s%N > when'))
  assert.deepEqual([forced.ran, forced.cached], [[2, 3], [1]])
  const all = await build(template(), free(), { skipCache: true })
  assert.deepEqual([all.ran, all.cached], [[1, 2, 3], []])
  const when = await Promise.all([first, again, forced, all].map((one) => run(`${one.templateId}:${one.buildId}`, 'cat when')))
  assert.equal(when[0], when[1])
  assert.equal(new Set(when).size, 3)
})

test('logs come with levels, and the first and last lines are those of the server', async () => {
  const { logs, templateId, buildId } = await build(Template().fromTemplate('base').runCmd(`echo ${mark()} out; echo err >&2; seq 150`))
  const messages = logs.map((entry) => entry.message)
  assert.ok(messages.includes(`Building template ${templateId}/${buildId}`))
  assert.ok(messages.includes('[builder 1/1] [stderr]: err'))
  assert.equal(messages.filter((message) => /^\[builder 1\/1\] \[stdout\]: \d+$/.test(message)).length, 150)
  assert.ok(messages.some((message) => /^Build finished, took \S+s$/.test(message)))
  assert.ok(logs.every((entry) => ['debug', 'info', 'warn', 'error'].includes(entry.level) && entry.timestamp instanceof Date))
})

test('a failure has the text of the server and the line of the step', async () => {
  const template = Template()
    .fromTemplate('base')
    .runCmd('true')
    .runCmd('exit 7')
  await assert.rejects(build(template), (error) => {
    assert.ok(error instanceof BuildError)
    assert.match(error.message, /failed to run command 'exit 7': exit status 7/)
    assert.match(error.stack, /templates\.test\.mjs/)
    return true
  })
  await assert.rejects(build(Template().fromTemplate('no-such-template')), /template 'no-such-template' not found/)
  await assert.rejects(build(Template().fromTemplate('base'), 'not a name'), /Invalid name/)
  assert.throws(() => Template({ fileContextPath: context }).fromTemplate('base').copy('../x', '/x'), TemplateError)
})

test('a build in the background is polled', async () => {
  const info = await Template.buildInBackground(Template().fromTemplate('base').runCmd(`: ${mark()}; echo working; sleep 5`), free())
  const first = await Template.getBuildStatus(info)
  assert.ok(['waiting', 'building'].includes(first.status))
  let status
  const deadline = Date.now() + 120_000
  do {
    status = await Template.getBuildStatus(info)
    await new Promise((resolve) => setTimeout(resolve, 50))
  } while (!['ready', 'error'].includes(status.status) && Date.now() < deadline)
  assert.equal(status.status, 'ready')
  assert.ok(status.logEntries.some((entry) => entry.message.includes('working')))
  assert.deepEqual((await Template.getBuildStatus(info, { logsOffset: status.logEntries.length })).logEntries, [])
})

test('a start command runs before the sandbox is handed out', async () => {
  const { templateId } = await build(
    Template()
      .fromTemplate('base')
      .setEnvs({ GREETING: 'hello' })
      .setWorkdir('/srv/www')
      .setStartCmd('echo $GREETING > index.html; python3 -m http.server 8123', waitForPort(8123)),
  )
  assert.equal(await run(templateId, 'curl -s http://localhost:8123/'), 'hello\n')
  // What a start command writes is written anew in each sandbox: a template with another one begins without it.
  const child = await build(Template().fromTemplate(templateId).setReadyCmd(waitForFile('/srv/www/note')).runCmd('echo mine > note'))
  assert.equal(await run(child.templateId, 'ls /srv/www'), 'note\n')
})

describe('names and tags', () => {
  test('tags are set, moved, removed and used', async () => {
    const name = free()
    assert.equal(await Template.exists(name), false)
    const one = await build(Template().fromTemplate('base').runCmd('echo one > note'), `${name}:v1`, { tags: ['stable'] })
    assert.deepEqual(one.tags, ['v1', 'stable'])
    assert.equal(await Template.exists(name), true)
    assert.equal(await Template.aliasExists(`${name}:v1`), true)
    const two = await build(Template().fromTemplate('base').runCmd('echo two > note'), `${name}:v2`, { cpuCount: 1, memoryMB: 512 })
    assert.equal(one.templateId, two.templateId)
    assert.equal((await Template.assignTags(`${name}:v2`, ['stable', 'latest'])).buildId, two.buildId)
    assert.equal(await run(`${name}:stable`, 'cat note'), 'two\n')
    assert.equal(await run(`${name}:v1`, 'cat note'), 'one\n')
    assert.equal(await run(`${name}:${one.buildId}`, 'cat note'), 'one\n')
    await Template.removeTags(name, 'latest')
    assert.deepEqual((await Template.getTags(name)).map((tag) => tag.tag).sort(), ['stable', 'v1', 'v2'])
    await assert.rejects(Sandbox.create(`${name}:latest`), /tag 'latest' does not exist/)
    const info = await (await box(`${name}:v2`)).getInfo()
    assert.deepEqual([info.cpuCount, info.memoryMB], [1, 512])
  })

  test('a Dockerfile is built', async () => {
    const dockerfile = ['FROM e2bdev/base', 'ENV GREETING=hello', 'WORKDIR /srv', 'COPY a.txt ./copied', 'RUN echo $GREETING > greeting', 'USER runner', ''].join('\n')
    const { templateId } = await build(Template({ fileContextPath: context }).fromDockerfile(dockerfile))
    assert.equal(await run(templateId, 'id -un; pwd; cat greeting copied'), 'runner\n/srv\nhello\na')
  })
})
