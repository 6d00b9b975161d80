export default async function (output, { vars, prompt }) {
  return prompt === vars.x;
}
