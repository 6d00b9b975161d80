// The tools of agents, by the official TypeScript client of the Model Context Protocol: of `sandcove mcp`, and over HTTP.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const overHttp = (key) => {
  const requestInit = { headers: { 'X-API-Key': key } }
  return new StreamableHTTPClientTransport(new URL('/mcp', process.env.E2B_API_URL), { requestInit })
}

const transports = {
  // Address and key are those of the environment, as in any client's configuration.
  stdio: () => new StdioClientTransport({ command: process.env.SANDCOVE_BIN, args: ['mcp'], env: process.env }),
  http: () => overHttp(process.env.E2B_API_KEY),
}

for (const [name, transport] of Object.entries(transports)) {
  describe(name, () => {
    const client = new Client({ name: 'tests', version: '1.0.0' })
    let sandbox_id

    const call = async (name, args = {}, options = undefined) => {
      const result = await client.callTool({ name, arguments: args }, undefined, options)
      return { ...result, text: result.content.map((part) => part.text ?? '').join('\n') }
    }

    before(async () => {
      await client.connect(transport())
      sandbox_id = JSON.parse((await call('sandbox_create', { template: 'base', timeout_seconds: 900 })).text).sandbox_id
    })
    after(async () => {
      await call('sandbox_kill', { sandbox_id })
      await client.transport.terminateSession?.()
      await client.close()
    })

    test('tools are listed with schemas that the client accepts', async () => {
      const { tools } = await client.listTools()
      assert.ok(tools.length >= 13)
      assert.ok(tools.every((tool) => tool.description && tool.inputSchema.type === 'object'))
      assert.deepEqual(client.getServerVersion().name, 'sandcove')
    })

    test('commands and files of a sandbox are used', async () => {
      await call('write_file', { sandbox_id, path: '/tmp/a', content: 'b' })
      assert.equal((await call('run_command', { sandbox_id, command: 'cat /tmp/a' })).text, 'stdout:\nb\nexit status 0')
      const failed = await call('run_command', { sandbox_id, command: 'exit 3' })
      assert.ok(failed.isError)
      assert.equal(failed.text, 'exit status 3')
    })

    test('every tool works', async () => {
      const called = new Set(['sandbox_kill'])
      const use = async (tool, args = {}) => {
        called.add(tool)
        const result = await call(tool, args)
        assert.ok(!result.isError, `${tool}: ${result.text}`)
        return result.text
      }
      const own = JSON.parse(await use('sandbox_create', { timeout_seconds: 900, metadata: { by: name } })).sandbox_id
      const of = { sandbox_id: own }
      try {
        assert.ok(JSON.parse(await use('sandbox_list')).some((row) => row.sandbox_id === own))
        assert.equal(await use('run_code', { ...of, code: 'x = 6 * 7\nx' }), '42')
        assert.equal(await use('run_command', { ...of, command: 'printf 42' }), 'stdout:\n42\nexit status 0')
        await use('write_file', { ...of, path: '/tmp/dir/a', content: 'b' })
        assert.equal(await use('read_file', { ...of, path: '/tmp/dir/a' }), 'b')
        assert.equal(JSON.parse(await use('list_files', { ...of, path: '/tmp/dir' })).length, 1)
        assert.match(await use('port_url', { ...of, port: 8000 }), new RegExp(`^http://8000-${own}`))
        const snapshot = JSON.parse(await use('snapshot_create', of)).snapshotID
        assert.ok((await use('snapshot_list')).includes(snapshot))
        await use('snapshot_delete', { snapshot_id: snapshot })
        await use('sandbox_extend', { ...of, timeout_seconds: 600 })
      } finally {
        await call('sandbox_kill', of)
      }
      const { tools } = await client.listTools()
      assert.deepEqual([...called].sort(), tools.map((tool) => tool.name).sort())
    })

    test('progress comes while a command runs', async () => {
      const messages = []
      let begun
      const first = new Promise((resolve) => (begun = resolve))
      const onprogress = ({ message }) => (messages.push(message), begun())
      const command = 'echo begun; until [ -e /tmp/go ]; do sleep 0.1; done'
      const running = call('run_command', { sandbox_id, command }, { onprogress, resetTimeoutOnProgress: true })
      await first
      assert.equal(messages[0], 'begun')
      await call('write_file', { sandbox_id, path: '/tmp/go', content: '' })
      assert.ok(!(await running).isError)
    })

    test('a cancelled command is killed', async () => {
      const abort = new AbortController()
      const command = 'echo $$ > /tmp/pid; echo begun; sleep 7656'
      const running = call('run_command', { sandbox_id, command }, { signal: abort.signal, onprogress: () => abort.abort() })
      await assert.rejects(running)
      const ended = 'while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.1; done; echo ended'
      assert.match((await call('run_command', { sandbox_id, command: ended })).text, /ended/)
    })
  })
}

test('a wrong key is refused', async () => {
  const client = new Client({ name: 'tests', version: '1.0.0' })
  await assert.rejects(client.connect(overHttp(`e2b_${'0'.repeat(40)}`)), /401|Unauthorized|API key/)
})
