export default class Own {
  constructor(options) {
    this.config = options.config
  }
  id() {
    return 'own-provider'
  }
  async callApi(prompt, context) {
    if (prompt === 'fail') throw new Error('thrown by js')
    if (prompt === 'object') return { output: { x: context.vars.x } }
    return { output: prompt + this.config.suffix, tokenUsage: { total: 3 } }
  }
}
