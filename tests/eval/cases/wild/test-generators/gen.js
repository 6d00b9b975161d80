module.exports = async function () { return [{ vars: { a: 'js' }, assert: [{ type: 'javascript', value: (output) => output === 'js' }] }]; };
