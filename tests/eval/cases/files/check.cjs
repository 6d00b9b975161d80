module.exports = async (output, context) => {
  console.log('a line that nobody should take for an answer {"id": 1}')
  return output.length === 5 && context.vars.text === output
}
module.exports.isLong = (output) => output.length > 4
