module.exports = (varName, prompt, otherVars, provider) => ({ output: `computed for ${varName} beside ${otherVars.number}` })
