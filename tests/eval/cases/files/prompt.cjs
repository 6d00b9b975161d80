module.exports = async ({ vars, provider }) => `say ${vars.x}`
module.exports.other = ({ vars }) => [{ role: 'user', content: `shout ${vars.x}` }]
