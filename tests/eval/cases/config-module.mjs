// A configuration that is a module and returns itself from a function, with tests that are made by another and a provider that is an object.
class Shouting {
  constructor(name) {
    this.name = name
    this.calls = 0
  }
  id() {
    return this.name
  }
  async callApi(prompt) {
    this.calls += 1
    return { output: `${prompt.toUpperCase()} ${this.calls}` }
  }
}

export default async () => ({
  prompts: ['{{word}} {{n}}'],
  providers: [new Shouting('shouting')],
  tests: () => [1, 2].map((n) => ({ vars: { word: 'row', n }, assert: [{ type: 'starts-with', value: `ROW ${n}` }] })),
})
