export function graded(output, { config }) {
  const pass = output.length >= config.limit
  return { pass, score: pass ? 0.9 : 0.1, reason: `limit ${config.limit}`, namedScores: { size: output.length } }
}

export const expected = () => 'five5'
