module.exports = class {
  id() { return 'configured' }
  async callApi(prompt, context) {
    const { temperature, top_p } = context.prompt.config ?? {}
    return { output: `${prompt} temperature=${temperature} top_p=${top_p}` }
  }
}
