export default (output, context) => output.length === context.vars.x.length
