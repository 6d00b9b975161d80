module.exports = {
  beforeEach: async (context) => {
    context.test.vars.z = 'js'
    return context
  },
  afterAll: async () => {},
}
