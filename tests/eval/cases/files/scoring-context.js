module.exports = (scores, context) => ({
  pass: context.threshold === undefined || context.componentResults.some((result) => result.pass),
  score: context.componentResults.length / 4,
  reason: `${Object.keys(scores).join(' ')} ${context.threshold} ${context.tokensUsed.total}`,
  namedScores: { ...scores, own: 0.25 },
});
