module.exports = (namedScores, context) => namedScores.precision + 1;
