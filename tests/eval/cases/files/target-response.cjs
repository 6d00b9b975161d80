module.exports = (json, text, context) => ({ output: `${context.response.status} ${json.text}`, metadata: { length: text.length > 0 } });
module.exports.path = (json) => json.path;
module.exports.session = ({ headers, body }) => body.session.id;
module.exports.good = (status) => status < 300;
module.exports.stream = (accumulator, event, context) => {
  const data = JSON.parse(event.data);
  return [{ output: (accumulator.output ?? '') + (data.text ?? '') }, data.type === 'end'];
};
