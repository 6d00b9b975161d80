module.exports = class {
  constructor(options) {
    this.greeting = options.config.greeting;
  }

  id() {
    return 'target';
  }

  async callApi(prompt, context) {
    const answers = {
      text: { output: `${this.greeting} ${prompt}` },
      object: { output: { greeting: this.greeting } },
      tokens: { output: 'x', cost: 0.25, tokenUsage: { total: 7, prompt: 3, completion: 4 }, metadata: { seen: context.vars.x } },
      refusal: { output: 'no', isRefusal: true },
      error: { error: 'broken' },
      empty: { output: '' },
      cached: { output: 'x', cached: true },
    };
    return answers[prompt];
  }
};
