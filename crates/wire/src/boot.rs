//! The messages by which the host starts a sandbox's agent, and the descriptors they come on. These messages only grow: a new
//! host must be able to talk to an agent that has been running since before an upgrade.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::SandboxId;
use crate::secret::Secret;

/// Descriptor of the listening unix socket for the host's own requests (control channel).
pub const CONTROL_FD: i32 = 3;
/// Descriptor of the stream socket for the boot. The host writes a line with a [`Boot`] message as JSON; the agent answers with
/// one byte, [`READY`], once its ports accept connections. Some time later the host writes a line with an [`Assignment`], which
/// is answered with [`READY`] too, and then both sides close. A host that closes earlier does not want the sandbox.
pub const BOOT_FD: i32 = 4;
/// The agent's answer to each line on [`BOOT_FD`].
pub const READY: u8 = b'1';

/// Descriptor of a socket to a warm interpreter that was forked into the sandbox, if [`Boot::zygote`] is set.
pub const ZYGOTE_FD: i32 = 5;

/// Port of the agent's public service.
pub const AGENT_PORT: u16 = 49983;
/// Port of the code interpreter.
pub const INTERPRETER_PORT: u16 = 49999;
/// The agent version reported to clients; it switches their features on (contract: envd, section 8).
pub const ENVD_VERSION: &str = "0.6.13";
/// Directory inside the sandbox on which the host's programs are mounted, read-only.
pub const LIBEXEC: &str = "/run/sandcove";

/// Everything the agent needs to be ready, before it is known which sandbox it will serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The template id shown in `E2B_TEMPLATE_ID`.
    pub template_id: String,
    /// Host name, without a domain.
    pub hostname: String,
    /// Name servers for `/etc/resolv.conf`; empty when the sandbox has no network.
    #[serde(default)]
    pub nameservers: Vec<IpAddr>,
    /// Services that the agent starts in order and keeps running. It answers [`READY`] once they are up.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Whether [`ZYGOTE_FD`] is open, for the service that takes it.
    #[serde(default)]
    pub zygote: bool,
    /// Whether there is time to warm up: to do what the first requests of a sandbox do, before they come.
    #[serde(rename = "rehearse", default)]
    pub warm_up: bool,
    /// Variables of the template, for the services.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Gives a sandbox that is ready its identity.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    /// Id of the sandbox from now on.
    pub sandbox_id: SandboxId,
    /// Settings of the template, changed by those of the request that created the sandbox.
    #[serde(default)]
    pub settings: Settings,
}

/// Settings that a control request may change while the sandbox runs (contract: envd, section 7). An absent field leaves its
/// value unchanged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Global variables of the user; replaced as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Token that requests from outside must carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<Secret>,
    /// Whether requests must carry the token; true when unset. Clients before 1.5 cannot send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_required: Option<bool>,
    /// User of requests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Directory of processes that name none; the home directory when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
}

/// A program that the agent keeps running for as long as the sandbox lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Short name, for logs.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Account that the program runs under.
    pub user: String,
    /// Variables in addition to those of the account.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: String,
    /// A port that must accept connections before the sandbox counts as ready.
    #[serde(default)]
    pub ready_port: Option<u16>,
    /// Whether the program takes the socket to the warm interpreter as its standard input. Only its first start gets the socket,
    /// and then [`ENV_ZYGOTE`] is set.
    #[serde(default)]
    pub zygote: bool,
}

/// Directories that [`WARM_COMMAND`] loads code from. A sandbox that begins with files of its own there must not get a process
/// that loaded the template's.
pub const WARM_SOURCES: [&str; 4] =
    ["usr/lib/python3", "usr/lib/python3.13", "usr/local/lib/python3.13", "root/.local/lib"];

/// Program and arguments of the warm interpreter, which finds its control socket as descriptor 3.
pub const WARM_COMMAND: [&str; 8] = [
    "/usr/bin/env",
    "-C",
    "/run/sandcove/python",
    "HOME=/root",
    "python3",
    "-m",
    "sandcove_kernel",
    "--warm=3",
];

/// Set when the standard input of a service is the socket to a warm interpreter.
pub const ENV_ZYGOTE: &str = "SANDCOVE_INTERPRETER_ZYGOTE";
/// Set for the interpreter when the languages beyond the lean ones are still being built into its template.
pub const ENV_LANGUAGES_BUILDING: &str = "SANDCOVE_LANGUAGES_BUILDING";
/// Set when a service has time to warm up.
pub const ENV_WARM_UP: &str = "SANDCOVE_INTERPRETER_REHEARSE";
