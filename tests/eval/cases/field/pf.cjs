module.exports = ({ vars, provider, config }) => `${typeof provider.id} ${provider.id === 'echo'} ${JSON.stringify(provider.label)} ${Object.keys(provider)} {{l}} {{v}}`
