export default async function () {
  return [{ vars: { q: 'from js' }, assert: [{ type: 'equals', value: 'from js' }] }];
}
