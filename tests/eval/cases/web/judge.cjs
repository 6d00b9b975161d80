module.exports = class {
  id() { return 'judge'; }
  async callApi(prompt) {
    const text = typeof prompt === 'string' ? prompt : JSON.stringify(prompt);
    if (/scores 0\.4/.test(text)) return { output: '{"score": 0.4, "reason": "low"}' };
    if (/scores 0\.6/.test(text)) return { output: 'Sure:\n```json\n{"pass": true, "score": 0.6, "reason": "fine"}\n```' };
    if (/fails/.test(text)) return { output: { pass: false, score: 0, reason: 'no' } };
    return { output: '{"pass": true, "score": 1, "reason": "yes"}' };
  }
};
