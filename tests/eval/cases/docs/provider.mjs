export default class {
  id() { return 'mjs'; }
  async callApi(prompt) { return { output: prompt === 'number' ? 42 : prompt === 'object' ? { a: 1 } : prompt, cost: 0 }; }
}
