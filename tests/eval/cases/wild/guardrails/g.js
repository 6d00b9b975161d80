module.exports = class { id() { return 'g'; } async callApi(p) { return { output: p, guardrails: { flagged: p === 'bad', flaggedInput: true, reason: 'nope' } }; } };
