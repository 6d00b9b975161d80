// The README's program works as written, and prints what it says.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'

const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8')
const programs = [...readme.matchAll(/^```js\n([^]*?)^```/gm)].map(([, text]) => text)

test('the program of the README prints what it says', async () => {
  assert.ok(programs.length > 0)
  for (const program of programs) {
    const promised = [...program.matchAll(/console\.log\(.*\)\s+\/\/ (.+)$/gm)].map(([, text]) => text)
    assert.ok(promised.length > 0)
    // Beside this file, so that the packages are found.
    const file = new URL('./readme.example.mjs', import.meta.url)
    await writeFile(file, program)
    try {
      const { stdout } = await promisify(execFile)(process.execPath, [file.pathname], { timeout: 180_000 })
      assert.deepEqual(stdout.trim().split('\n'), promised)
    } finally {
      await rm(file)
    }
  }
})
