module.exports = (output, context) => ({
  pass: true,
  score: 1,
  reason: 'all parts',
  componentResults: [
    { pass: true, score: 1, reason: 'one' },
    { pass: false, score: 0, reason: 'two' },
  ],
  namedScores: { parts: 0.5 },
})
