//! The messages by which the host starts a sandbox's agent, and the descriptors they come on. These messages only grow: a new
//! host must be able to talk to an agent that has been running since before an upgrade.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::SandboxId;
use crate::secret::Secret;

/// Descriptor of the listening unix socket for the host's own requests (control channel).
pub const CONTROL_FD: i32 = 3;
/// Abstract name of that socket, in the sandbox's network namespace. Everybody inside can connect to it, so the agent serves only
/// processes that are not in its PID namespace. A file of the host's could not be stored on disk with the sandbox.
pub const CONTROL_NAME: &str = "sandcove-control";
/// Descriptor of the stream socket for the boot. The host writes a line with a [`Boot`] message as JSON; the agent answers with
/// one byte, [`READY`], once its ports accept connections. Some time later the host writes a line with an [`Assignment`], which
/// is answered with [`READY`] too, and then both sides close. A host that closes earlier does not want the sandbox.
pub const BOOT_FD: i32 = 4;
/// The agent's answer to each line on [`BOOT_FD`].
pub const READY: u8 = b'1';

/// Descriptor of a socket to the zygote of the sandbox, if [`Boot::zygote`] is set: the fork of the template's warm process, from
/// which the code interpreter has its Python kernels forked.
pub const ZYGOTE_FD: i32 = 5;

/// Port of the agent's public service.
pub const AGENT_PORT: u16 = 49983;
/// Port of the code interpreter.
pub const INTERPRETER_PORT: u16 = 49999;
/// Address at which programs ask for the identity of their sandbox, by `GET /me` on port 80 (contract: envd, section 6).
pub const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Port of that address on which the agent listens; the kernel changes port 80 to it. Programs of the sandbox may then listen on port 80 of all
/// addresses.
pub const METADATA_PORT: u16 = 49982;
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
    /// Services that the agent starts: those that it keeps running, all at once, and then those that run once, one after the other. It
    /// answers [`READY`] when all of them are ready.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Whether [`ZYGOTE_FD`] is open, for the service that takes it.
    #[serde(default)]
    pub zygote: bool,
    /// Whether there is time to warm up: to do what the first requests of a sandbox do, before they come. The name in messages is that
    /// of earlier versions.
    #[serde(rename = "rehearse", default)]
    pub warm_up: bool,
    /// Variables of the template, for the services.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl Boot {
    /// The time that ready commands may add to the boot.
    #[must_use]
    pub fn ready_commands_time(&self) -> Duration {
        let waits = |service: &&Service| service.once || service.ready_command.is_some();
        let count = self.services.iter().filter(waits).count();
        READY_COMMAND_TIMEOUT.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }
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

/// Gives an agent whose memory was restored from a snapshot the identity of another sandbox than the one that the snapshot is of. Settings
/// take the place of those in memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renewal {
    /// Id of the template from now on.
    pub template_id: String,
    /// Identity and settings from now on.
    pub assignment: Assignment,
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
    /// Whether all processes end with the one that a client started, as in the steps of a template build; false when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_together: Option<bool>,
    /// Certificates of authorities that programs trust from now on, PEM; they replace those of before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
}

/// A program that the agent starts before the sandbox counts as ready. When it ends, the agent starts it again, unless it runs once.
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
    /// Working directory; the home directory of the account when unset.
    #[serde(default)]
    pub cwd: Option<String>,
    /// A port that must accept connections before the sandbox counts as ready.
    #[serde(default)]
    pub ready_port: Option<u16>,
    /// Whether the program takes the socket to the zygote as its standard input. Only its first start gets the socket, and then
    /// [`ENV_ZYGOTE`] is set.
    #[serde(default)]
    pub zygote: bool,
    /// Whether the program runs only once, as the start command of a template does: the agent does not restart it, and a status
    /// other than 0 before the sandbox is ready fails the boot. An empty command starts nothing, so that a template can have a
    /// ready command alone.
    #[serde(default)]
    pub once: bool,
    /// Command line that must succeed before the sandbox counts as ready, run repeatedly as `user` with `env` in `cwd` (contract:
    /// templates, section 9.4). A program that runs once without a ready command counts as ready after [`DEFAULT_READY_TIME`].
    #[serde(default)]
    pub ready_command: Option<String>,
}

impl Service {
    /// The service that runs the start command of a template and waits for its ready command (contract: templates, section 9.4).
    /// `None` when the template has neither: then a sandbox is ready at once.
    #[must_use]
    pub fn of_template(
        start_command: Option<&str>,
        ready_command: Option<&str>,
        user: &str,
        cwd: Option<&str>,
        env: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let start_command = start_command.filter(|command| !command.trim().is_empty());
        let ready_command = ready_command.filter(|command| !command.trim().is_empty());
        let command = match (start_command, ready_command) {
            (None, None) => return None,
            (None, Some(_)) => Vec::new(),
            (Some(start), _) => login_shell(start).into(),
        };
        Some(Self {
            name: START_COMMAND.to_owned(),
            command,
            user: user.to_owned(),
            env: env.clone(),
            cwd: cwd.map(str::to_owned),
            ready_port: None,
            zygote: false,
            once: true,
            ready_command: ready_command.map(str::to_owned),
        })
    }
}

/// Program and arguments that run a command line in a login shell. In a sandbox without bash, the agent runs `/bin/sh` in its
/// place.
#[must_use]
pub fn login_shell(line: &str) -> [String; 4] {
    ["/bin/bash", "-l", "-c", line].map(str::to_owned)
}

/// Name of the service that runs the start command of a template.
pub const START_COMMAND: &str = "start command";
/// Time after which a start command without a ready command counts as ready, as the ready command `sleep 20` has it.
pub const DEFAULT_READY_TIME: Duration = Duration::from_secs(20);
/// Maximum time that the agent waits for a ready command to succeed. A host waits a little longer for [`READY`].
pub const READY_COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
/// Start of the lines of the sandbox log with the output of a start command; the name of the stream follows.
pub const START_OUTPUT: &str = "[start] ";
/// Start of the lines of the sandbox log about a ready command: the output of its attempts, and why they failed.
pub const READY_OUTPUT: &str = "[ready] ";
/// Start of the reason in the last line of the sandbox log when a start command failed a boot.
pub const START_COMMAND_FAILED: &str = "start command failed: ";
/// Start of the reason in the last line of the sandbox log when a ready command failed a boot.
pub const READY_COMMAND_FAILED: &str = "ready command failed: ";

/// Name of the service that runs the code interpreter.
pub const INTERPRETER: &str = "code-interpreter";

impl Service {
    /// The code interpreter, with variables for itself and its kernels.
    #[must_use]
    pub fn interpreter(env: BTreeMap<String, String>) -> Self {
        Self {
            name: INTERPRETER.to_owned(),
            command: vec![format!("{LIBEXEC}/sandcove-interpreter")],
            user: "root".to_owned(),
            env,
            cwd: Some("/home/user".to_owned()),
            ready_port: Some(INTERPRETER_PORT),
            zygote: true,
            once: false,
            ready_command: None,
        }
    }
}

/// Variable by which a template asks for the interpreter.
pub const ENV_INTERPRETER: &str = "SANDCOVE_INTERPRETER";
/// Variable of the interpreter: the Python of its kernels and of the template's warm process.
pub const ENV_PYTHON: &str = "SANDCOVE_INTERPRETER_PYTHON";
/// The default of [`ENV_PYTHON`] for warm processes, which have no search path of a sandbox.
pub const PYTHON: &str = "/usr/bin/python3";
/// Variable of the interpreter: the modules to import ahead, separated by commas or spaces. Without it, a list for data analysis.
pub const ENV_WARM_MODULES: &str = "SANDCOVE_WARM_MODULES";
/// Variable of the interpreter: the directories that its Python loads code from, without a leading slash, separated by colons. A
/// sandbox that begins with files of its own there must not get a process that loaded the template's.
pub const ENV_WARM_SOURCES: &str = "SANDCOVE_WARM_SOURCES";
/// The default of [`ENV_WARM_SOURCES`].
pub const WARM_SOURCES: [&str; 4] =
    ["usr/lib/python3", "usr/lib/python3.13", "usr/local/lib/python3.13", "root/.local/lib"];

/// Directory of the interpreter's Python code, in which a warm process starts.
pub const WARM_DIRECTORY: &str = "/run/sandcove/python";
/// Arguments with which Python becomes a warm process, which finds its control socket as descriptor 3.
pub const WARM_ARGUMENTS: [&str; 3] = ["-m", "sandcove_kernel", "--warm=3"];

/// Set when the standard input of a service is the socket to the zygote.
pub const ENV_ZYGOTE: &str = "SANDCOVE_INTERPRETER_ZYGOTE";
/// Set for the interpreter when the languages beyond the lean ones are still being built into its template.
pub const ENV_LANGUAGES_BUILDING: &str = "SANDCOVE_LANGUAGES_BUILDING";
/// Set when a service has time to warm up. The name is that of earlier versions.
pub const ENV_WARM_UP: &str = "SANDCOVE_INTERPRETER_REHEARSE";
