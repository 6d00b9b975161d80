module.exports = async () =>
  ['a', 'b'].map((text) => ({ vars: { text }, assert: [{ type: 'equals', value: 'a' }] }))
