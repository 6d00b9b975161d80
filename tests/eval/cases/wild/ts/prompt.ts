type Ctx = { vars: Record<string, string>; provider?: { id: string } };
export default async function (ctx: Ctx): Promise<string> { return `default ${ctx.vars.t}`; }
export const named = ({ vars }: Ctx) => [{ role: 'user', content: vars.t as string }];
