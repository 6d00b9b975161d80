module.exports = class { id() { return 's'; } async callApi() { return { output: '' }; } };
