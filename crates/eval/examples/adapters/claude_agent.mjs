// An agent of the Claude Agent SDK, in a directory of its own.

import path from "node:path";

export default class ClaudeAgent {
  constructor({ config = {}, label } = {}) {
    this.config = config;
    this.label = label;
  }

  id() {
    return this.label || `anthropic:claude-agent-sdk:${this.config.model || "default"}`;
  }

  async callApi(prompt) {
    const { query } = await import("@anthropic-ai/claude-agent-sdk").catch(() => {
      throw new Error("the package is missing: npm install @anthropic-ai/claude-agent-sdk");
    });
    const { model, working_dir, max_turns, permission_mode, custom_allowed_tools, disallowed_tools, custom_system_prompt, mcp } = this.config;
    const options = {
      model, cwd: working_dir && path.resolve(working_dir), maxTurns: max_turns, permissionMode: permission_mode,
      allowedTools: custom_allowed_tools, disallowedTools: disallowed_tools, systemPrompt: custom_system_prompt, mcpServers: mcp?.servers,
    };
    for (const key of Object.keys(options)) if (options[key] === undefined) delete options[key];
    let end;
    for await (const message of query({ prompt, options })) if (message.type === "result") end = message;
    if (!end) return { error: "the agent ended without a result" };
    const { input_tokens = 0, output_tokens = 0 } = end.usage || {};
    const shared = { cost: end.total_cost_usd, sessionId: end.session_id, tokenUsage: { prompt: input_tokens, completion: output_tokens, total: input_tokens + output_tokens } };
    return end.subtype === "success" && !end.is_error ? { output: end.result, ...shared } : { error: end.result || `the agent ended: ${end.subtype}`, ...shared };
  }
}
