import { TestCase } from 'promptfoo';
import { label } from './names.js';

enum Kind {
  Good = 'good',
  Bad = 'bad',
}

export const tests: TestCase[] = [
  { vars: { t: 'one' }, assert: [{ type: 'javascript', value: 'file://wild/ts/check.ts' }, { type: 'contains', value: Kind.Good }] },
  { vars: { t: `two ${label} ${Kind.Good}` }, assert: [{ type: 'contains', value: 'two L good' } as const] },
];
