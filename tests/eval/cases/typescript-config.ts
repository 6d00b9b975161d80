import type { UnifiedConfig } from 'promptfoo';
import { tests } from './wild/ts/lib/cases';

interface Options<T> {
  suffix: T;
}
const options: Options<string> = { suffix: '!' };

const config: UnifiedConfig = {
  description: 'a configuration in TypeScript',
  prompts: ['{{t}}' + options.suffix, 'file://wild/ts/prompt.ts'],
  providers: ['echo', 'file://wild/ts/provider.ts', { id: 'file://wild/ts/provider.mts', label: 'module' }],
  tests,
  defaultTest: { options: { transform: 'file://wild/ts/transform.ts' } },
};

export default config;
