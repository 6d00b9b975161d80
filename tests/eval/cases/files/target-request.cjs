module.exports = (prompt, vars) => ({ question: prompt, of: vars.x });
module.exports.shout = (prompt) => prompt.toUpperCase();
