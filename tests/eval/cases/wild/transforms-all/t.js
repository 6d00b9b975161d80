module.exports = (output, context) => `<${output}>`;
module.exports.named = (output) => 'x' + output;
