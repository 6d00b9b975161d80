// "Custom JavaScript providers" and "Configuration in JavaScript": functions everywhere that one may stand.
module.exports = {
  description: 'functions in place of files',
  prompts: ['A prompt about {{topic}}, longer than twenty', 'Plain {{topic}}'],
  providers: [
    async (prompt, context) => ({ output: `${context.vars.topic}:${prompt.length > 20}`, tokenUsage: { total: 3, prompt: 1, completion: 2 }, cost: 0.5 }),
    { id: 'echo', transform: (output) => output.slice(0, 10) },
  ],
  defaultTest: { assert: [{ type: 'javascript', value: (output) => output.length > 3 }] },
  tests: [
    { vars: { topic: 'bees' }, assert: [{ type: 'javascript', value: (output, { vars }) => output.includes(vars.topic) }, { type: 'cost', threshold: 0.6 }] },
    { vars: { topic: 'made' }, assert: [{ type: 'contains', value: 'made' }] },
  ],
};
