// An agent that runs elsewhere: it answers with what the output orders.
module.exports = class {
  id() {
    return 'openai:codex-sdk';
  }
  async callApi(prompt) {
    return { output: /<<(.*?)>>/s.exec(prompt)[1].replaceAll('\\"', '"') };
  }
};
