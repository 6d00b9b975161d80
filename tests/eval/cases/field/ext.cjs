module.exports = async function extensionHook(hookName, context) {
  if (hookName === 'beforeAll') { context.suite.tests.push({ vars: { x: 'added' }, assert: [{ type: 'equals', value: 'added' }] }); context.suite.prompts.push({raw: 'second {{x}}', label: 'second'}); return context }
  if (hookName === 'beforeEach') { context.test.vars.y = 'Y'; context.test.assert = [...(context.test.assert || []), { type: 'contains', value: 'd' }]; return context }
  if (hookName === 'afterEach') { context.result.metadata = { ...context.result.metadata, hooked: true }; context.result.namedScores = { ...context.result.namedScores, extra: 0.5 }; return context }
}
