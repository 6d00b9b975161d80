module.exports = {
  beforeAll({ suite }, { hookName }) {
    if (hookName !== 'beforeAll') throw new Error(hookName)
    suite.tests.push({ vars: { x: 'added' }, assert: [{ type: 'equals', value: 'added!' }] })
    suite.prompts.pop()
    suite.defaultTest.assert.push({ type: 'not-contains', value: 'nothing' })
    return { suite }
  },
  afterEach({ test, result }) {
    result.namedScores.length = result.response.output.length
    result.namedScores.nonsense = NaN
    result.success = false
    return { test, result }
  },
}
