export async function beforeAll(context: { suite: any }) {
  context.suite.tests.push({ vars: { t: 'hooked' }, assert: [{ type: 'contains', value: 'hooked' }] });
  return context;
}
