const multiply = async (args) => {
  const { a, b } = JSON.parse(args)
  return { product: a * b }
}
const fails = () => {
  throw new Error('no')
}
module.exports = { multiply, fails }
