module.exports = class {
  constructor(options) {
    this.options = options
  }
  id() {
    return 'contexts'
  }
  async callApi(prompt, context) {
    const cache = context.getCache()
    const key = `${prompt} ${context.vars.__evalStepId}`
    await cache.set(key, prompt)
    return {
      output: JSON.stringify([
        ['label', ['mine', ''].includes(this.label)],
        ['id is that of the file', this.options.id === 'file://files/contexts.cjs'],
        ['delay', [0, 1, undefined].includes(this.delay)],
        ['vars', Object.keys(context.vars).sort().join() === '__evalId,__evalStepId,__repeatIndex,x'],
        ['template', context.prompt.raw === 'ask {{x}}' && context.prompt.label === 'asking' && context.prompt.config.k === 1],
        ['cache', (await cache.get(key)) === prompt],
        ['filters', Object.keys(context.filters).join() === 'shout' && context.filters.shout('a') === 'A!'],
        ['original', /contexts/.test(context.originalProvider.id()) && typeof context.originalProvider.callApi === 'function'],
        ['logger', typeof context.logger.info === 'function'],
      ]),
    }
  }
}
