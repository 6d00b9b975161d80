//! The tools, as clients list them.

use serde_json::{Value, json};

/// The effect of a tool on the world, for clients that ask their user before some calls.
enum Effect {
    Reads,
    Changes,
    Destroys,
}

/// All tools with the schemas of their arguments.
pub(crate) fn all() -> Value {
    let sandbox =
        json!({ "type": "string", "description": "id of the sandbox, from sandbox_create or sandbox_list" });
    let path = json!({ "type": "string", "description": "absolute, or relative to the home directory of the default user" });
    let seconds = |about: &str, default: u32| json!({ "type": "integer", "minimum": 1, "default": default, "description": about });
    let variables = json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": "environment variables" });
    json!([
        tool(
            "sandbox_create",
            "Create an isolated Linux sandbox and return its id. Files, variables and processes stay in it until it is killed or its \
             timeout ends.",
            &Effect::Changes,
            json!({
                "template": { "type": "string", "default": "code-interpreter-v1", "description": "name or id of a template, or id of a snapshot" },
                "timeout_seconds": seconds("seconds until the sandbox is killed", 300),
                "envs": variables,
                "metadata": { "type": "object", "additionalProperties": { "type": "string" }, "description": "labels" },
                "internet": { "type": "boolean", "default": true, "description": "whether the sandbox may reach the internet" },
            }),
            &[],
        ),
        tool(
            "sandbox_list",
            "List running and paused sandboxes, newest first.",
            &Effect::Reads,
            json!({}),
            &[]
        ),
        tool(
            "sandbox_extend",
            "Set the end of a running sandbox.",
            &Effect::Changes,
            json!({ "sandbox_id": sandbox, "timeout_seconds": seconds("seconds from now", 300) }),
            &["sandbox_id", "timeout_seconds"],
        ),
        tool(
            "sandbox_kill",
            "Kill a sandbox. Its files are lost, unless a snapshot has them.",
            &Effect::Destroys,
            json!({ "sandbox_id": sandbox }),
            &["sandbox_id"],
        ),
        tool(
            "run_code",
            "Run code in the notebook kernel of a sandbox. Variables stay for the next call. Returns what was printed, the value of the last \
             expression, pictures, and errors. Needs a template with the code interpreter, such as code-interpreter-v1.",
            &Effect::Changes,
            json!({
                "sandbox_id": sandbox,
                "code": { "type": "string" },
                "language": { "type": "string", "default": "python", "description": "python, javascript, typescript, bash, r or java" },
                "timeout_seconds": seconds("seconds until the code is interrupted", 300),
            }),
            &["sandbox_id", "code"],
        ),
        tool(
            "run_command",
            "Run a command line with bash in a sandbox. Returns its output and exit status, or with background its process id.",
            &Effect::Changes,
            json!({
                "sandbox_id": sandbox,
                "command": { "type": "string" },
                "cwd": { "type": "string", "description": "directory to run in" },
                "user": { "type": "string", "description": "account to run as, for example root" },
                "envs": variables,
                "background": { "type": "boolean", "default": false, "description": "return at once and leave the command running" },
                "timeout_seconds": seconds("seconds until the command is killed", 300),
            }),
            &["sandbox_id", "command"],
        ),
        tool(
            "read_file",
            "Read a file of a sandbox. Text is returned as text, pictures as pictures.",
            &Effect::Reads,
            json!({ "sandbox_id": sandbox, "path": path }),
            &["sandbox_id", "path"],
        ),
        tool(
            "write_file",
            "Write a text file in a sandbox, and create missing directories above it.",
            &Effect::Changes,
            json!({ "sandbox_id": sandbox, "path": path, "content": { "type": "string" } }),
            &["sandbox_id", "path", "content"],
        ),
        tool(
            "list_files",
            "List a directory of a sandbox.",
            &Effect::Reads,
            json!({ "sandbox_id": sandbox, "path": { "type": "string", "description": "absolute path" } }),
            &["sandbox_id", "path"],
        ),
        tool(
            "port_url",
            "Return the URL at which a port of a sandbox is reached over HTTP.",
            &Effect::Reads,
            json!({ "sandbox_id": sandbox, "port": { "type": "integer", "minimum": 1, "maximum": 65535 } }),
            &["sandbox_id", "port"],
        ),
        tool(
            "snapshot_create",
            "Take a snapshot of the files of a sandbox, which goes on, and return its id. sandbox_create takes the id as a template.",
            &Effect::Changes,
            json!({ "sandbox_id": sandbox, "name": { "type": "string" } }),
            &["sandbox_id"],
        ),
        tool("snapshot_list", "List snapshots, newest first.", &Effect::Reads, json!({}), &[]),
        tool(
            "snapshot_delete",
            "Delete a snapshot.",
            &Effect::Destroys,
            json!({ "snapshot_id": { "type": "string" } }),
            &["snapshot_id"],
        ),
    ])
}

fn tool(name: &str, about: &str, effect: &Effect, properties: Value, required: &[&str]) -> Value {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let annotations = json!({
        "readOnlyHint": matches!(effect, Effect::Reads),
        "destructiveHint": matches!(effect, Effect::Destroys),
    });
    json!({ "name": name, "description": about, "inputSchema": schema, "annotations": annotations })
}
