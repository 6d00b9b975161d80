module.exports = class {
  id() { return 'odd'; }
  async callApi(prompt) {
    switch (prompt) {
      case 'empty': return { output: '' };
      case 'null': return { output: null };
      case 'zero': return { output: 0 };
      case 'false': return { output: false };
      case 'list': return { output: [1, { a: 2 }] };
      case 'error': return { error: 'no luck' };
      case 'throw': throw new Error('thrown');
      case 'both': return { output: 'said', error: 'and failed' };
      case 'none': return {};
      case 'text': return 'plain';
      default: return { output: 'm', metadata: { k: 1 }, finishReason: 'stop' };
    }
  }
};
