module.exports = (scores, { componentResults }) => ({
  pass: scores.first === 1,
  score: 0.3,
  reason: `own score of ${componentResults.length} parts`,
})
