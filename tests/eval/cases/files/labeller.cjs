// A provider with all methods that graders have, so that none needs a service.
module.exports = class {
  id() {
    return 'labeller'
  }

  async callApi() {
    return { output: 'unused' }
  }

  async callClassificationApi(text) {
    const kind = text.includes('kind') ? 0.9 : 0.2
    return { classification: { kind, rude: 1 - kind } }
  }

  async callModerationApi(prompt, answer) {
    const flags = []
    if (answer.includes('hate')) flags.push({ code: 'hate', description: 'hatred', confidence: 0.9 })
    if (answer.includes('hit')) flags.push({ code: 'violence', description: 'violence', confidence: 0.8 })
    return { flags }
  }
}
