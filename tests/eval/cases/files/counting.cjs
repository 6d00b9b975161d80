module.exports = class {
  constructor(options) { this.options = options; this.n = 0 }
  id() { return 'counting' }
  async callApi() { this.n += 1; return { output: `${this.n} ${this.options.config.mark.length}` } }
}
