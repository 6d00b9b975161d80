module.exports = class { id() { return 'g'; } async callApi(p) { return { output: p, logProbs: [-0.1, -0.4, -0.7] }; } };
