export function named(config) { return Array.from({ length: config.max }, (_, i) => ({ vars: { a: 'm' + i } })); }
