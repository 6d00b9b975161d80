// An agent of the Codex SDK, in a directory of its own.

import path from "node:path";

export default class CodexAgent {
  constructor({ config = {}, label } = {}) {
    this.config = config;
    this.label = label;
  }

  id() {
    return this.label || `openai:codex-sdk:${this.config.model || "default"}`;
  }

  async callApi(prompt) {
    const { Codex } = await import("@openai/codex-sdk").catch(() => {
      throw new Error("the package is missing: npm install @openai/codex-sdk");
    });
    const { model, working_dir, sandbox_mode = "read-only", skip_git_repo_check = true, output_schema, base_url } = this.config;
    const codex = new Codex({ apiKey: process.env.CODEX_API_KEY || process.env.OPENAI_API_KEY, baseUrl: base_url });
    const thread = codex.startThread({
      model, workingDirectory: working_dir && path.resolve(working_dir), sandboxMode: sandbox_mode, skipGitRepoCheck: skip_git_repo_check,
    });
    const turn = await thread.run(prompt, output_schema ? { outputSchema: output_schema } : {});
    const { input_tokens: prompts = 0, output_tokens: answers = 0 } = turn.usage || {};
    return { output: turn.finalResponse, sessionId: thread.id, tokenUsage: { prompt: prompts, completion: answers, total: prompts + answers } };
  }
}
