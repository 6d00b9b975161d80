export default async function ({ vars, provider }) {
  return `js ${vars.question} ${provider.id}`
}
