module.exports = (namedScores, context) => (namedScores.Tone || 0) * 10;
