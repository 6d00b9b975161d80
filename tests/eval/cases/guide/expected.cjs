module.exports = (output, context) => context.vars.x.slice(1)
