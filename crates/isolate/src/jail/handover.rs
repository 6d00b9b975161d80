//! The messages that server, builder and PID 1 exchange while a jail is built, and the directories of the spawner's
//! file system that they agree on. The sequence is drawn in [`crate::spawner`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Number of ids in a sandbox's id range.
pub(crate) const ID_COUNT: u32 = 65_536;
/// Directory of the spawner's root where PID 1 mounts its future root.
pub(crate) const NEW_ROOT: &str = "/newroot";
/// Directory of the spawner's root where builders attach idmapped layers, each below its index.
pub(crate) const LAYERS: &str = "/layers";
/// Directory of the spawner's root where builders attach the idmapped upper.
pub(crate) const UPPER: &str = "/upper";
/// Directory of the spawner's root with copies of the guest programs, each version below its name.
pub(crate) const PROGRAMS: &str = "/programs";
/// Directory of the spawner's root that stays empty.
pub(crate) const EMPTY: &str = "/empty";
/// Directory of the spawner's root with CRIU, if this host has it.
pub(crate) const CRIU: &str = "/criu";
/// Directory of the spawner's root where the builder of a restore puts what CRIU mounts.
pub(crate) const GIVEN: &str = "/given";
/// File beside CRIU's images that names the files of layers which processes have mapped from elsewhere.
pub(crate) const FOREIGN: &str = "foreign.json";
/// File beside CRIU's images with terminals, and the first process of the session that each controls, or 0.
pub(crate) const SESSIONS: &str = "sessions.json";
/// End of the name that a generation of images gets when processes run that come from it.
pub(crate) const USED: &str = ".used";
/// Maximum number of layers of a template.
pub(crate) const MAX_LAYERS: usize = 64;

/// Request of the server to the spawner. Descriptors: the user and the PID namespace of the warm process, for a sandbox that is
/// to get a fork of it, and the builder's end of the reply socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BuildRequest {
    /// First host id of the jail's id range.
    pub id_base: u32,
    /// Kind of jail to build.
    pub kind: JailKind,
    /// Processes to restore instead of starting a program.
    pub restore: Option<Box<Restore>>,
}

/// A sandbox whose processes are on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Restore {
    /// Directory of CRIU's images.
    pub images: PathBuf,
    /// The generation that they are from, if it is used up by this restore.
    pub generation: Option<PathBuf>,
    /// The file systems and the network.
    pub launch: Launch,
    /// Address that the sandbox had, if it is another one now: connections hold on to it.
    pub former_address: Option<Ipv4Addr>,
}

/// Order of the server to the builder of a restore to take the next step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Proceed;

/// The two kinds of jails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JailKind {
    /// A sandbox.
    Sandbox,
    /// A template's warm process. The user and PID namespaces of the sandboxes that its forks enter are made in its own.
    Warm {
        /// First of the host ids that its sandboxes' ranges are taken from.
        sandboxes_from: u32,
        /// Number of these ids.
        sandboxes_count: u32,
    },
}

/// Order to go on, from the server to the builder and from the builder to PID 1. Descriptors: the log, then those that the
/// program finds from descriptor 3 on (for an agent: control, boot and zygote); the builder adds the file systems it has mounted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Host name inside.
    pub hostname: String,
    /// Layer directories, topmost first.
    pub layers: Vec<PathBuf>,
    /// Directory that holds `upper` and `work`.
    pub upper: PathBuf,
    /// Volumes to mount inside, in this order.
    pub volumes: Vec<VolumeMount>,
    /// Address of the sandbox and of its gateway; none without a network.
    pub address: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Version of the guest programs.
    pub programs: String,
    /// Size limit of the memory-backed file systems, MiB.
    pub tmpfs_mib: u64,
    /// Kind of jail.
    pub kind: JailKind,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables of the program beside the usual ones.
    pub env: BTreeMap<String, String>,
    /// Directory that the program begins in; the root when unset.
    pub directory: Option<String>,
}

/// A volume's directory on the host and where a sandbox sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct VolumeMount {
    /// Directory on the host.
    pub source: PathBuf,
    /// Directory inside.
    pub target: String,
}

/// Reply of the builder to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// PID 1 exists, has its id maps, and waits for the launch order.
    Cloned {
        /// Host pid of PID 1.
        pid: u32,
    },
    /// The processes are restored and do not run yet.
    Restored,
    /// PID 1 has executed its program, or restored processes run.
    Launched,
    /// A step failed. The builder has cleaned up its part; the server cleans up its own.
    Failed(Failure),
}

/// A failed step.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[error("step `{step}`: {reason}")]
pub(crate) struct Failure {
    /// Name of the step.
    pub step: String,
    /// Text of the error.
    pub reason: String,
}

impl Failure {
    /// Names the step an error happened in, for `map_err`.
    pub(crate) fn at<E: std::fmt::Display>(step: &str) -> impl FnOnce(E) -> Self + '_ {
        move |error| Self { step: step.to_owned(), reason: error.to_string() }
    }
}
