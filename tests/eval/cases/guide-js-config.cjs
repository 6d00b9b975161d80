module.exports = {
  description: 'a configuration in JavaScript',
  prompts: ['Hi {{name}}', { label: 'bye', raw: 'Bye {{name}}' }],
  providers: ['echo'],
  tests: ['Ada', 'Bob'].map((name) => ({
    description: `greets ${name}`,
    vars: { name },
    assert: [
      { type: 'contains', value: name },
      { type: 'javascript', value: (output, context) => output.length > 5 && context.vars.name === name },
    ],
  })),
}
