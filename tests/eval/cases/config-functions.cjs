// A configuration that is a program, with functions where YAML names files.
module.exports = {
  prompts: [{ raw: 'say', label: 'say', function: ({ vars }) => `say ${vars.word}` }, 'tell {{word}}'],
  providers: [async (prompt, context) => ({ output: `${prompt.toUpperCase()} ${context.vars.n}` }), 'echo'],
  defaultTest: {
    assert: [{ type: 'javascript', value: (output, context) => output.toLowerCase().includes(context.vars.word) }],
  },
  tests: [
    { vars: { word: 'hi', n: 1 }, assert: [{ type: 'contains', value: 'HI 1' }] },
    {
      vars: { word: 'ho', n: 2 },
      options: { transform: (output, context) => `${output}/${context.vars.n}` },
      assert: [{ type: 'javascript', value: (output) => ({ pass: output.endsWith('/2'), score: 0.5, reason: 'from a function' }) }],
    },
  ],
}
