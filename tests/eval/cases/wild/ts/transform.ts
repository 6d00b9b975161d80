export default (output: string, { vars }: { vars: Record<string, string> }): string => `${output}|${vars.t}`;
