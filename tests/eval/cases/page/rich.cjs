module.exports = class {
  id() {
    return 'rich';
  }
  async callApi(prompt) {
    const common = {
      metadata: { steps: ['plan', 'do'] },
      raw: { status: 200 },
      tokenUsage: { total: 7, prompt: 3, completion: 4 },
      cost: 0.005,
      logProbs: [-0.1, -0.2],
      finishReason: 'stop',
      guardrails: { flagged: false },
    };
    switch (prompt) {
      case 'fail':
        return { error: 'no luck', ...common };
      case 'empty':
        return { output: '', ...common };
      case 'object':
        return { output: { deep: { list: [1, 2] } }, ...common };
      case 'refusal':
        return { output: 'anything', isRefusal: true, ...common };
      default:
        return { output: prompt, ...common };
    }
  }
};
