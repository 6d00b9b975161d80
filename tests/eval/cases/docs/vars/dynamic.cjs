module.exports = (varName, prompt, otherVars) => ({ output: `dynamic ${varName} ${Object.keys(otherVars).length}` });
