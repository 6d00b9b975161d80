module.exports = (name, prompt, others, provider) => ({ output: `${name} from javascript` })
