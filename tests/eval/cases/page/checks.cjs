module.exports = (output, context) => ({ pass: output === context.vars.x, score: 0.9, reason: 'same' });
module.exports.later = async (output, { config }) => output.length > config.min;
module.exports.parts = () => ({
  pass: false,
  score: 0.5,
  reason: 'parts',
  componentResults: [
    { pass: true, score: 1, reason: 'good' },
    { pass: false, score: 0, reason: 'bad' },
  ],
});
