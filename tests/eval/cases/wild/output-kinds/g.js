const answers = { num: 42, bool: false, null: null, arr: [1, 2], empty: '', obj: { a: 1 } };
module.exports = class { id() { return 'g'; } async callApi(p) { return { output: answers[p] }; } };
