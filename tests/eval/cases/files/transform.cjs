module.exports.named = (output, context) => 'javascript:' + output
