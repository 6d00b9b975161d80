module.exports = class { id() { return 'n'; } async callApi() { return {}; } };
