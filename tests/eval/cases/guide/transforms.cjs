module.exports = (output, context) => `${output}|${context.vars.x}`
module.exports.upper = (output) => output.toUpperCase()
module.exports.vars = (vars) => ({ ...vars, x: `${vars.x}-t` })
