export default (output, context) => ({
  pass: output.length > 5,
  score: Math.min(1, output.length / 20),
  reason: `length ${output.length}`,
  namedScores: { length: output.length },
  componentResults: [{ pass: true, score: 1, reason: 'first' }, { pass: output.includes(' '), score: 0.5, reason: 'second' }],
});
