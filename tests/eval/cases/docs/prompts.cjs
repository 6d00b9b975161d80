module.exports.chat = async ({ vars, provider }) => [
  { role: 'system', content: `You're a ${provider.label || provider.id} helper` },
  { role: 'user', content: `Tell me about ${vars.topic}` },
];
module.exports.text = ({ vars }) => `About {{topic}} and ${vars.topic}`;
module.exports.withConfig = ({ vars }) => ({ prompt: `Config ${vars.topic}`, config: { max_tokens: 5 } });
