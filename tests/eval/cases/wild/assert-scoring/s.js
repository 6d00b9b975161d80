module.exports = (namedScores, context) => ({ pass: namedScores.m1 > 0.5, score: namedScores.m1 * 0.9, reason: 'own ' + Object.keys(context).sort() });
