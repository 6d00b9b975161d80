export default async function () { return [{ vars: { x: "mjs" } }] }
