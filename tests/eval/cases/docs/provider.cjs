class P {
  constructor(options) { this.options = options; this.providerId = options.id || 'custom'; }
  id() { return `custom-${this.options.config.prefix}`; }
  async callApi(prompt, context, callOptions) {
    if (prompt === 'throw') throw new Error('thrown');
    if (prompt === 'error') return { error: 'an error' };
    if (prompt === 'nothing') return {};
    if (prompt === 'number') return { output: 42 };
    if (prompt === 'object') return { output: { a: 1 } };
    return { output: `${this.options.config.prefix} ${prompt} ${context.vars.x}`, tokenUsage: { total: 10, prompt: 4, completion: 6 }, cost: 0.5, metadata: { seen: context.test?.metadata } };
  }
}
module.exports = P;
