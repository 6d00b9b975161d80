export const named = (output, { config }) => ({ pass: output.length >= config.min, score: 0.9, reason: `at least ${config.min}` })
export const scored = async (output) => output.length / 10
export const never = () => false
export const promise = () => Promise.resolve(0.75)
