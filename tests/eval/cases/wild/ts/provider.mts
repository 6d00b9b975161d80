import fs from 'node:fs';
const here: string = import.meta.url.split('/').pop()!.split('?')[0];
const extra = await Promise.resolve(1 as number);
export default class { id() { return 'mts' } async callApi(p: string) { return { output: `${here} ${p} ${extra} ${typeof fs.readFileSync}` } } }
