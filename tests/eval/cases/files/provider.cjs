module.exports = class {
  constructor(options) {
    this.options = options
    this.calls = 0
  }
  id() {
    return 'marked'
  }
  async callApi(prompt, context) {
    console.log('{"id": 1, "value": "not an answer"}')
    return { output: prompt + this.options.config.mark, tokenUsage: { total: 2, prompt: 1, completion: 1 } }
  }
}
