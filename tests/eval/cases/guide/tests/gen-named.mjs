export const make = ({ count }) => Array.from({ length: count }, (_, n) => ({ vars: { a: n, b: n, sum: n * 2 }, metadata: { n } }))
