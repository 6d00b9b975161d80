export default class Reversed {
  id() {
    return 'reversed'
  }
  async callApi(prompt, context) {
    return { output: { text: [...prompt].reverse().join(''), vars: Object.keys(context.vars) } }
  }
}
