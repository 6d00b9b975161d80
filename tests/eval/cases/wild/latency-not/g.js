module.exports = class { id() { return 'g'; } async callApi(p) { return { output: p, cost: 0.01, latencyMs: 500 }; } };
