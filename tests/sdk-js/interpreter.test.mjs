// The code interpreter through the JavaScript package: every method, callback and kind of result.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Sandbox } from '@e2b/code-interpreter'
import { InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } from 'e2b'

let sandbox
before(async () => {
  sandbox = await Sandbox.create({ timeoutMs: 1_200_000 })
})
after(() => sandbox.kill())

// The package leaves the second of these timers running after a failure, and the test process with it.
const patient = { timeoutMs: 120_000, requestTimeoutMs: 60_000 }
const run = (code, options) => sandbox.runCode(code, { ...patient, ...options })

async function only(code, options) {
  const execution = await run(code, options)
  assert.equal(execution.error, undefined, execution.error?.traceback)
  assert.equal(execution.results.length, 1)
  return execution.results[0]
}

async function withContext(options, body) {
  const context = await sandbox.createCodeContext(options)
  try {
    await body(context)
  } finally {
    await sandbox.removeCodeContext(context)
  }
}

// Resolves when the next answer begins: that of an execution does when its code is in the queue.
const nextAnswerBegins = () =>
  new Promise((resolve, reject) => {
    const { fetch } = globalThis
    globalThis.fetch = (...request) => {
      globalThis.fetch = fetch
      const answer = fetch(...request)
      answer.then(resolve, reject)
      return answer
    }
  })

const waitFor = async (path) => {
  const end = Date.now() + 60_000
  while (!(await sandbox.files.exists(path))) {
    assert.ok(Date.now() < end, `${path} did not come`)
    await sleep(20)
  }
}

describe('executions', () => {
  test('state, counts and main results', () =>
    withContext({}, async (context) => {
      await run('x = 41', { context })
      const execution = await run('display(1)\nx + 1', { context })
      assert.equal(execution.text, '42')
      assert.equal(execution.executionCount, 2)
      assert.deepEqual(execution.results.map((result) => [result.text, result.isMainResult]), [['1', false], ['42', true]])
    }))

  test('callbacks get everything as it comes', async () => {
    const seen = []
    // A line may come in pieces.
    const said = (kind) => (message) => {
      const last = seen.at(-1)
      if (last?.[0] === kind && last[2] === message.error) last[1] += message.line
      else seen.push([kind, message.line, message.error])
    }
    const execution = await run("import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(5)\n1/0", {
      onStdout: said('out'),
      onStderr: said('err'),
      onResult: (result) => seen.push(['result', result.text]),
      onError: (error) => seen.push(['error', error.name, error.value]),
    })
    assert.deepEqual(seen, [
      ['out', 'out\n', false],
      ['err', 'err\n', true],
      ['result', '5'],
      ['error', 'ZeroDivisionError', 'division by zero'],
    ])
    assert.match(execution.error.traceback, /ZeroDivisionError/)
    assert.deepEqual([execution.logs.stdout.join(''), execution.logs.stderr.join('')], ['out\n', 'err\n'])
  })

  test('text arrives unchanged, whatever it holds', async () => {
    const text = 'åß 日本語 👩‍👩‍👧 \u0000\u0007 \r \u001c \u0085 \u2028 \u2029 end'
    const execution = await run(`print(${JSON.stringify(text)})`)
    assert.equal(execution.logs.stdout.join(''), `${text}\n`)
  })

  test('ten megabytes as a result and as output', async () => {
    const whole = '0123456789'.repeat(1024 * 1024)
    assert.equal((await run("'0123456789' * (1024 * 1024)")).text, whole)
    assert.equal((await run("print('0123456789' * (1024 * 1024), end='')")).logs.stdout.join(''), whole)
  })

  test('magics, shell lines and awaits', async () => {
    assert.equal((await run('!echo hello')).logs.stdout.join(''), 'hello\r\n')
    assert.equal((await run('%%bash\necho $((6 * 7))')).logs.stdout.join(''), '42\n')
    assert.equal((await run("import asyncio\nawait asyncio.sleep(0.01, 'slept')")).text, 'slept')
  })

  test('input is refused', async () => {
    assert.equal((await run('input()')).error.name, 'StdinNotImplementedError')
  })
})

describe('limits and deaths', () => {
  test('a timeout of the client interrupts and keeps the state', () =>
    withContext({}, async (context) => {
      await run("x = 'kept'", { context })
      await assert.rejects(run('while True: pass', { context, timeoutMs: 500 }), TimeoutError)
      // The cell never ends by itself: that the next one runs is the proof that it was interrupted.
      assert.equal((await run('x', { context })).text, 'kept')
    }))

  test('an aborted request interrupts too', () =>
    withContext({}, async (context) => {
      const abort = new AbortController()
      const code = "print('on', flush=True)\nimport time; time.sleep(60)"
      await assert.rejects(run(code, { context, timeoutMs: 400, onStdout: () => abort.abort() }))
      assert.equal((await run('1 + 1', { context })).text, '2')
    }))

  test('a dead kernel is an error and comes back', () =>
    withContext({}, async (context) => {
      const { error } = await run('import os; os.kill(os.getpid(), 9)', { context })
      assert.equal(error.name, 'ContextRestarting')
      assert.equal((await run('1 + 1', { context })).text, '2')
    }))

  test('a killed sandbox ends its execution', async () => {
    const doomed = await Sandbox.create({ timeoutMs: 300_000 })
    const execution = doomed.runCode("print('on', flush=True)\nimport time; time.sleep(600)", { onStdout: () => doomed.kill(), ...patient })
    await assert.rejects(execution, (error) => {
      assert.ok(error instanceof TimeoutError, String(error))
      assert.match(error.message, /sandbox was killed while the request was in progress/)
      return true
    })
  })
})

describe('contexts', () => {
  test('are created, listed last and removed', async () => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
    assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
    assert.equal((await run('import os; os.getcwd()', { context })).text, '/tmp')
    const listed = await sandbox.listCodeContexts()
    assert.deepEqual(listed.slice(0, 2).map((each) => each.language), ['python', 'javascript'])
    assert.deepEqual(listed.at(-1), context)
    await sandbox.removeCodeContext(context)
    assert.ok(!(await sandbox.listCodeContexts()).some((each) => each.id === context.id))
    await assert.rejects(run('1', { context }), NotFoundError)
    await assert.rejects(sandbox.restartCodeContext(context), NotFoundError)
  })

  test('restart empty, with the same id', () =>
    withContext({}, async (context) => {
      await run('x = 1', { context })
      await sandbox.restartCodeContext(context.id)
      const execution = await run('x', { context })
      assert.equal(execution.error.name, 'NameError')
      assert.equal(execution.executionCount, 1)
    }))

  test('removed while running, end what runs', async () => {
    const context = await sandbox.createCodeContext()
    const execution = run("open('/tmp/on', 'w').close()\nimport time; time.sleep(600)", { context })
    await waitFor('/tmp/on')
    await sandbox.removeCodeContext(context)
    assert.equal((await execution).error.name, 'UnexpectedEndOfExecution')
  })

  test('share nothing and run at the same time', () =>
    withContext({}, (one) =>
      withContext({}, async (two) => {
        const meet = (me, other) =>
          `import os, time\nx = ${me}\nopen('/tmp/js-${me}', 'w').close()\nend = time.monotonic() + 100\n` +
          `while not os.path.exists('/tmp/js-${other}') and time.monotonic() < end: time.sleep(0.01)\n` +
          `[x, os.path.exists('/tmp/js-${other}')]`
        const met = await Promise.all([run(meet(1, 2), { context: one }), run(meet(2, 1), { context: two })])
        assert.deepEqual(met.map((execution) => execution.text), ['[1, True]', '[2, True]'])
      })
    ))

  test('take their executions in order', () =>
    withContext({}, async (context) => {
      await run('log = []', { context })
      const submitted = []
      for (let number = 0; number < 5; number++) {
        const queued = nextAnswerBegins()
        submitted.push(run(`import time; log.append(${number}); time.sleep(0.2)`, { context }))
        await Promise.race([queued, submitted.at(-1)])
      }
      await Promise.all(submitted)
      assert.equal((await run('log', { context })).text, '[0, 1, 2, 3, 4]')
    }))

  test('and languages exclude each other', () =>
    withContext({}, async (context) => {
      await assert.rejects(run('1', { context, language: 'python' }), InvalidArgumentError)
    }))

  test('of unknown languages are refused', async () => {
    await assert.rejects(run('1', { language: 'cobol' }), SandboxError)
    await assert.rejects(sandbox.createCodeContext({ language: 'cobol' }), SandboxError)
  })
})

describe('environment variables', () => {
  const read = {
    python: (name) => `import os; print(os.environ.get('${name}', 'unset'))`,
    javascript: (name) => `console.log(process.env['${name}'] ?? 'unset')`,
    typescript: (name) => `console.log((process.env['${name}'] as string) ?? 'unset')`,
    bash: (name) => `echo "\${${name}-unset}"`,
  }
  let coloured
  before(async () => {
    coloured = await Sandbox.create({ timeoutMs: 1_200_000, envs: { COLOUR: 'sandbox' } })
  })
  after(() => coloured.kill())

  for (const [language, program] of Object.entries(read)) {
    test(`of a call win in ${language}, and are gone after it`, async () => {
      const value = async (name, envs) => (await coloured.runCode(program(name), { language, envs, ...patient })).logs.stdout.join('').trim()
      assert.equal(await value('COLOUR'), 'sandbox')
      assert.equal(await value('COLOUR', { COLOUR: `it's "blå"` }), `it's "blå"`)
      assert.equal(await value('COLOUR'), 'sandbox')
      assert.equal(await value('ONCE', { ONCE: '1' }), '1')
      assert.equal(await value('ONCE'), 'unset')
    })
  }
})

describe('results', () => {
  const displayed = {
    html: ["HTML('<b>')", '<b>'],
    markdown: ["Markdown('# A')", '# A'],
    latex: ["Latex('$x$')", '$x$'],
    javascript: ["Javascript('f()')", 'f()'],
    json: ["JSON({'a': [1, None]})", { a: [1, null] }],
  }
  for (const [member, [code, value]] of Object.entries(displayed)) {
    test(`as ${member}`, async () => {
      const result = await only(`from IPython.display import *\n${code}`)
      assert.deepEqual(result[member], value)
      assert.deepEqual([...result.formats()], [member])
    })
  }

  test('as data of a frame', async () => {
    const code = "import pandas as pd\npd.DataFrame({'a': [1.5, None], 'd': pd.to_datetime(['2024-01-31', None])})"
    const result = await only(code)
    assert.deepEqual(result.data, { a: [1.5, null], d: ['2024-01-31T00:00:00', 'NaT'] })
    assert.match(result.html, /<table/)
    assert.match(result.text, /2024-01-31/)
  })

  test('as pictures', async () => {
    const result = await only("from PIL import Image\nImage.new('RGB', (2, 2))")
    assert.ok(result.png.startsWith('iVBORw0KGgo'))
  })

  test('as several representations of one class', async () => {
    const code =
      "class Own:\n    def __repr__(self): return 'own'\n    def _repr_svg_(self): return '<svg/>'\n" +
      "    def _repr_pdf_(self): return b'%PDF'\n    def _repr_jpeg_(self): return b'x'\n" +
      "    def _repr_e2b_data_(self): return {'c': [1]}\nOwn()"
    const result = await only(code)
    assert.deepEqual([result.text, result.svg, result.pdf, result.jpeg, result.data], ['own', '<svg/>', 'JVBERg==', 'eA==', { c: [1] }])
  })
})

describe('charts', () => {
  const charts = {
    line: ["plt.plot([1, 2], [3, 4], label='l')", [{ label: 'l', points: [[1, 3], [2, 4]] }]],
    scatter: ["plt.scatter([1, 2], [3, 4], label='s')", [{ label: 's', points: [[1, 3], [2, 4]] }]],
    bar: ["plt.bar(['a', 'b'], [1, 2], label='g')", [{ label: 'a', group: 'g', value: 1 }, { label: 'b', group: 'g', value: 2 }]],
    pie: ["plt.pie([1, 1], labels=['a', 'b'])", [{ label: 'a', angle: 180, radius: 1 }, { label: 'b', angle: 180, radius: 1 }]],
    box_and_whisker: [
      "plt.boxplot([[1, 2, 3, 4, 5], [2, 4, 6, 8, 10]], tick_labels=['a', 'b'], patch_artist=True)",
      [
        { label: 'a', min: 1, first_quartile: 2, median: 3, third_quartile: 4, max: 5, outliers: [] },
        { label: 'b', min: 2, first_quartile: 4, median: 6, third_quartile: 8, max: 10, outliers: [] },
      ],
    ],
    unknown: ['plt.imshow([[1]])', []],
  }
  const draw = (code) => only(`import matplotlib.pyplot as plt\nplt.close('all')\n${code}\nplt.show()`)

  for (const [type, [code, elements]] of Object.entries(charts)) {
    test(`of type ${type}`, async () => {
      const result = await draw(`${code}; plt.title('T')`)
      assert.ok(result.png)
      assert.deepEqual([result.chart.type, result.chart.title, result.chart.elements], [type, 'T', elements])
      assert.deepEqual(result.extra ?? {}, {})
    })
  }

  test('of type superchart', async () => {
    const { chart } = await draw("f, (a, b) = plt.subplots(1, 2); a.plot([1]); b.bar(['x'], [1]); f.suptitle('S')")
    assert.deepEqual([chart.type, chart.title, chart.elements.map((each) => each.type)], ['superchart', 'S', ['line', 'bar']])
  })
})

describe('other languages', () => {
  test('javascript and typescript', async () => {
    for (const language of ['javascript', 'js', 'typescript', 'ts']) {
      assert.equal((await run('[1, 2].map((n) => n * 2)', { language })).text, '[ 2, 4 ]')
      assert.equal((await run('await Promise.resolve(7)', { language })).text, '7')
      const { error } = await run("throw new TypeError('boom')", { language })
      assert.deepEqual([error.name, error.value], ['TypeError', 'boom'])
    }
    assert.equal((await run('interface A { n: number }; const a: A = { n: 3 }; a.n', { language: 'ts' })).text, '3')
  })

  test('bash', async () => {
    assert.equal((await run('x=5; echo $x; echo err >&2', { language: 'bash' })).logs.stdout.join(''), '5\nerr\n')
    const { error } = await run('exit_with() { return 3; }; exit_with', { language: 'bash' })
    assert.deepEqual([error.name, error.value, error.traceback], ['', '3', ''])
  })
})
