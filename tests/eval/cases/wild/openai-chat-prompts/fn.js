module.exports = async function ({ vars, provider }) { return [{ role: 'system', content: `provider ${provider.id}` }, { role: 'user', content: `About ${vars.topic}` }]; };
