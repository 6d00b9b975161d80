export async function later(output, { vars, config }) {
  await new Promise((resolve) => setTimeout(resolve, 5));
  return output.includes(vars.word) ? (config?.score ?? true) : false;
}
