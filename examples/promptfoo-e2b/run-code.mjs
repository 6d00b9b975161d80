// A JavaScript assertion: takes the code out of the answer, runs it with `vars.call` in a sandbox, compares what comes out.
import { Sandbox } from '@e2b/code-interpreter'

export default async function (output, { vars }) {
  const block = output.match(/```(?:python)?\s*\n([\s\S]*?)```/i)
  if (!block) {
    return { pass: false, score: 0, reason: `no code in the answer: ${output.slice(0, 200)}` }
  }
  // Code that nobody has read gets no network and not much time.
  const sandbox = await Sandbox.create({ allowInternetAccess: false, timeoutMs: 60_000 })
  try {
    const execution = await sandbox.runCode(`${block[1]}\nprint(${vars.call})`, { timeoutMs: 10_000 })
    return verdict(execution, vars)
  } finally {
    await sandbox.kill()
  }
}

function verdict(execution, vars) {
  const printed = execution.logs.stdout.join('').trim()
  const raised = execution.error?.name
  const pass = vars.expected_error ? raised === vars.expected_error : !raised && printed === vars.expected
  const got = raised ? `${raised}: ${execution.error.value}` : printed
  return { pass, score: pass ? 1 : 0, reason: `wanted ${vars.expected_error ?? vars.expected}, got ${got}` }
}
