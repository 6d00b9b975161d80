//! What the host hands the agent when it starts a sandbox, and the descriptors it comes on. These messages only grow:
//! a new host must be able to talk to an agent that has been running since before an upgrade.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::SandboxId;
use crate::secret::Secret;

/// Descriptor of the listening unix socket for the host's own requests (control channel).
pub const CONTROL_FD: i32 = 3;
/// Descriptor of the stream socket of the boot. The host writes a line with a [`Boot`] message as JSON; the agent answers one
/// byte, [`READY`], once its ports accept connections. Some time later the host writes a line with an [`Assignment`], which
/// is answered by [`READY`] too, and then both sides close. A host that closes earlier does not want the sandbox.
pub const BOOT_FD: i32 = 4;
/// The agent's answer to each line on [`BOOT_FD`].
pub const READY: u8 = b'1';

/// Descriptor of a socket to a warm interpreter that was forked into the sandbox, when [`Boot::zygote`] says so.
pub const ZYGOTE_FD: i32 = 5;

/// Port of the agent's public service.
pub const AGENT_PORT: u16 = 49983;
/// Port of the code interpreter.
pub const INTERPRETER_PORT: u16 = 49999;
/// The agent version reported to clients; it switches their features on (contract: envd, section 8).
pub const ENVD_VERSION: &str = "0.6.13";
/// Where the host's programs for the inside are mounted, read-only.
pub const LIBEXEC: &str = "/run/sandcove";

/// Everything the agent needs to be ready, whoever the sandbox will be for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The template id shown in `E2B_TEMPLATE_ID`.
    pub template_id: String,
    /// Host name, without a domain.
    pub hostname: String,
    /// Name servers for `/etc/resolv.conf`; empty when the sandbox has no network.
    #[serde(default)]
    pub nameservers: Vec<IpAddr>,
    /// Services the agent starts and keeps running, in order, before it says it is ready to serve its own port.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Whether [`ZYGOTE_FD`] is there, for the service that wants it.
    #[serde(default)]
    pub zygote: bool,
    /// Whether there is time to do what the first requests of a sandbox do, so that they find it done.
    #[serde(default)]
    pub rehearse: bool,
    /// The template's variables, for the services.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Makes a sandbox that is ready somebody's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    /// The sandbox this is from now on.
    pub sandbox_id: SandboxId,
    /// The template's settings, with what its owner asked for.
    #[serde(default)]
    pub settings: Settings,
}

/// What a control request may change while the sandbox runs (contract: envd, section 7). An absent field leaves the
/// value as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The user set of global variables; replaced as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// The token that requests from outside must carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<Secret>,
    /// Whether requests without a token are let in although there is one. Clients before 1.5 cannot send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_required: Option<bool>,
    /// User of requests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Directory of processes that name none; home when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
}

/// A program the agent keeps running for as long as the sandbox lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Short name for logs.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The account it runs under.
    pub user: String,
    /// Variables on top of the account's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    pub cwd: String,
    /// A port that must accept connections before the sandbox counts as ready.
    #[serde(default)]
    pub ready_port: Option<u16>,
    /// Whether it takes the socket to the warm interpreter, as its standard input. Only its first start gets it, and then
    /// [`ENV_ZYGOTE`] is set.
    #[serde(default)]
    pub zygote: bool,
}

/// Directories that [`WARM_COMMAND`] has loaded code from. A sandbox that begins with files of its own there must not get
/// what was loaded from the template's.
pub const WARM_SOURCES: [&str; 4] =
    ["usr/lib/python3", "usr/lib/python3.13", "usr/local/lib/python3.13", "root/.local/lib"];

/// The warm interpreter's program and arguments: it finds its control socket as descriptor 3.
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

/// Tells a service that its standard input is the socket to a warm interpreter.
pub const ENV_ZYGOTE: &str = "SANDCOVE_INTERPRETER_ZYGOTE";
/// Tells the interpreter that the languages beyond the lean ones are still being built into its template.
pub const ENV_LANGUAGES_BUILDING: &str = "SANDCOVE_LANGUAGES_BUILDING";
/// Tells a service that there is time to rehearse.
pub const ENV_REHEARSE: &str = "SANDCOVE_INTERPRETER_REHEARSE";
