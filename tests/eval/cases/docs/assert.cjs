module.exports = (output, context) => output.length > 3 && context.vars.x === output;
module.exports.named = (output) => output.length / 100;
module.exports.asyncOne = async (output, context) => ({ pass: output.length > context.config.limit, score: 0.25, reason: 'async' });
module.exports.never = () => false;
module.exports.parts = () => ({
  pass: true, score: 0.75, reason: 'parts',
  namedScores: { inner: 0.5 },
  componentResults: [{ pass: true, score: 1, reason: 'a' }, { pass: false, score: 0.5, reason: 'b' }],
});
module.exports.value = (output, context) => 'Hello World';
module.exports.list = () => ['Hello', 'World'];
