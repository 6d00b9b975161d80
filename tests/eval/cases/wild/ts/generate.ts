export function generate(): object[] { return [{ vars: { t: 'gen' } }]; }
