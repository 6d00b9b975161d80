module.exports = (name, prompt, vars, provider) => ({ output: `${name} ${typeof provider} ${provider && typeof provider.id} ${provider && provider.label}` })
