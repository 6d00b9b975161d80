module.exports = class { id() { return 'p'; } async callApi() { throw new Error('exploded'); } };
