import type { AssertionValueFunctionContext, GradingResult } from 'promptfoo';
module.exports = (output: string, context: AssertionValueFunctionContext): GradingResult => ({ pass: output.length > 1, score: 0.5, reason: 'ts ok' });
module.exports.named = (output: string) => output.length > (2 as number);
