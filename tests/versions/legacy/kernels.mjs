// What programs for `@e2b/code-interpreter` 0.0.x do; says on one line what worked.
import assert from 'node:assert/strict'
import { CodeInterpreter } from '@e2b/code-interpreter'

const steps = []
let sandbox = await CodeInterpreter.create()
const run = (code, options) => sandbox.notebook.execCell(code, { timeout: 120_000, ...options })
try {
  await run('x = 20')
  const sum = await run('x + 22')
  assert.deepEqual([sum.text, sum.error, sum.results[0].isMainResult], ['42', undefined, true])
  steps.push('state')
  const streamed = []
  const note = (message) => streamed.push([message.line, message.error])
  const printed = await run("import sys\nprint('out')\nprint('err', file=sys.stderr)", { onStdout: note, onStderr: note })
  assert.deepEqual([printed.logs.stdout, printed.logs.stderr, printed.text], [['out\n'], ['err\n'], undefined])
  assert.deepEqual(streamed.sort(), [['err\n', true], ['out\n', false]])
  steps.push('streams')
  const failed = await run('1/0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  assert.match(failed.error.traceback, /1\/0/)
  steps.push('error')
  const shown = []
  const figure = await run('import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()', { onResult: (result) => shown.push(result) })
  assert.ok(figure.results[0].png && shown.length === 1)
  assert.ok((await run('import pandas as pd\npd.DataFrame({"a": [1]})')).results[0].html)
  steps.push('results')

  const own = await sandbox.notebook.defaultKernelID
  const other = await sandbox.notebook.createKernel('/tmp')
  assert.deepEqual((await sandbox.notebook.listKernels()).sort(), [own, other].sort())
  assert.equal((await run('import os; os.getcwd()', { kernelID: other })).text, '/tmp')
  assert.equal((await run('x', { kernelID: other })).error.name, 'NameError')
  steps.push('create list')
  await sandbox.notebook.restartKernel()
  assert.equal((await run('x')).error.name, 'NameError')
  await sandbox.notebook.shutdownKernel(other)
  assert.deepEqual(await sandbox.notebook.listKernels(), [own])
  steps.push('restart shutdown')

  await run("kept = 'here'")
  await sandbox.keepAlive(300_000)
  await sandbox.close()
  sandbox = await CodeInterpreter.reconnect(sandbox.id)
  assert.equal((await run('kept')).text, 'here')
  steps.push('reconnect')
} finally {
  if (CodeInterpreter.kill) await CodeInterpreter.kill(sandbox.id)
  await sandbox.close()
}
console.log('ok:', steps.join(' '))
process.exit(0)
