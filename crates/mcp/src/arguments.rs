//! Arguments of tools, as clients send them.

use std::collections::BTreeMap;

use sandcove_wire::id::SandboxId;
use serde::Deserialize;

/// Arguments of `sandbox_create`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    pub(crate) template: Option<String>,
    pub(crate) timeout_seconds: Option<u32>,
    #[serde(default)]
    pub(crate) envs: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) internet: Option<bool>,
}

/// Arguments of tools that need nothing but a sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    pub(crate) sandbox_id: SandboxId,
}

/// Arguments of tools that need nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Arguments of `sandbox_extend`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) timeout_seconds: u32,
}

/// Arguments of `run_code`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Code {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) code: String,
    pub(crate) language: Option<String>,
    pub(crate) timeout_seconds: Option<u32>,
}

/// Arguments of `run_command`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) command: String,
    pub(crate) cwd: Option<String>,
    pub(crate) user: Option<String>,
    #[serde(default)]
    pub(crate) envs: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) background: bool,
    pub(crate) timeout_seconds: Option<u32>,
}

/// Arguments of `read_file` and `list_files`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct At {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) path: String,
}

/// Arguments of `write_file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Write {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) path: String,
    pub(crate) content: String,
}

/// Arguments of `port_url`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) port: u16,
}

/// Arguments of `snapshot_create`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshot {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) name: Option<String>,
}

/// Arguments of `snapshot_delete`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    pub(crate) snapshot_id: String,
}
