module.exports.named = ({ vars, provider, config }) => ({ prompt: 'named ' + vars.x, config: { temperature: 0.1 } });
