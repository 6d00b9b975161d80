//! Settings of the host's kernel that a start changes, because sandboxes of all tenants share what they limit. They stay changed
//! when the server stops. (Packet forwarding is enabled with the firewall.)
//!
//! | setting | value | reason |
//! | --- | --- | --- |
//! | `kernel.pid_max` | at least 4,194,304 | the default of hosts without systemd, 32,768, is used up by a few dozen sandboxes |
//! | `kernel.pty.max` | at least 262,144 | one number for the host; each sandbox may have 256 terminals |
//! | `fs.file-max` | the maximum | one number of open files for the host; a sandbox is charged for the memory of its own |
//! | `net.ipv4.tcp_max_orphans` | at least 16,777,216 | one number for the host; beyond it the kernel resets every connection that is closed with data to send |
//! | `vm.oom_dump_tasks` | 0 | a sandbox at its memory limit would fill the kernel log with a line for each of its processes |
//! | `fs.inotify.max_user_instances`, `max_user_watches` | at least those of 1,024 sandboxes | one user of the host may be all sandboxes of a template together |

use std::io;
use std::path::{Path, PathBuf};

use crate::jail;

/// Number of process ids, the maximum of the kernel on 64-bit machines and the value that systemd sets.
const PID_MAX: u64 = 4_194_304;
/// Number of open files, the maximum of the kernel and the value that systemd sets.
const FILE_MAX: u64 = i64::MAX as u64;
/// Number of connections that nobody has open and whose data is not sent yet. The memory is charged to the sandbox that wrote it.
const TCP_ORPHANS: u64 = 1 << 24;
/// Number of sandboxes that limits of the host must suffice for. Each has a limit of its own and is charged for the memory.
const SANDBOXES: u64 = 1024;

/// The settings, below `/proc/sys`, with the values that they have at least; those that are 0 are so exactly.
const SETTINGS: [(&str, u64); 7] = [
    ("kernel/pid_max", PID_MAX),
    ("kernel/pty/max", jail::TERMINALS * SANDBOXES),
    ("fs/file-max", FILE_MAX),
    ("fs/inotify/max_user_instances", jail::INOTIFY_INSTANCES as u64 * SANDBOXES),
    ("fs/inotify/max_user_watches", jail::INOTIFY_WATCHES as u64 * SANDBOXES),
    ("net/ipv4/tcp_max_orphans", TCP_ORPHANS),
    ("vm/oom_dump_tasks", 0),
];

/// Changes the settings. A failure, as in a container with a read-only `/proc/sys`, is only logged: `sandcove doctor` says
/// what that means.
pub(super) fn apply() {
    for (setting, wanted) in SETTINGS {
        let path = path(setting);
        let changed = match is_so(setting, wanted) {
            Ok(true) => Ok(()),
            Ok(false) => std::fs::write(&path, wanted.to_string()),
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            tracing::warn!(%error, path = %path.display(), "failed to change a setting of the kernel");
        }
    }
}

/// Settings of the host's kernel that sandboxes need and that differ, each as `sysctl` sets it.
pub fn lacking_kernel_settings() -> Vec<String> {
    let lacking = SETTINGS.iter().filter(|(setting, wanted)| !is_so(setting, *wanted).unwrap_or_default());
    lacking.map(|(setting, wanted)| format!("{}={wanted}", setting.replace('/', "."))).collect()
}

fn is_so(setting: &str, wanted: u64) -> io::Result<bool> {
    let text = std::fs::read_to_string(path(setting))?;
    let now: u64 = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(if wanted == 0 { now == 0 } else { now >= wanted })
}

fn path(setting: &str) -> PathBuf {
    Path::new("/proc/sys").join(setting)
}
