//! Settings of the host's kernel that a start changes, because sandboxes of all tenants share what they limit. They stay changed
//! when the server stops. (Packet forwarding is enabled with the firewall.)
//!
//! | setting | value | reason |
//! | --- | --- | --- |
//! | `kernel.pid_max` | at least 4,194,304 | the default of hosts without systemd, 32,768, is used up by a few dozen sandboxes |
//! | `kernel.pty.max` | at least 262,144 | one number for the host; each sandbox may have 256 terminals |
//! | `vm.oom_dump_tasks` | 0 | a sandbox at its memory limit would fill the kernel log with a line for each of its processes |
//! | `fs.inotify.max_user_instances`, `max_user_watches` | at least those of 1,024 sandboxes | one user of the host may be all sandboxes of a template together |

use std::io;
use std::path::Path;

use crate::jail;

/// Number of process ids, the maximum of the kernel on 64-bit machines and the value that systemd sets.
const PID_MAX: u64 = 4_194_304;
/// Number of sandboxes that limits of the host must suffice for. Each has a limit of its own and is charged for the memory.
const SANDBOXES: u64 = 1024;

/// Changes the settings. A failure, as in a container with a read-only `/proc/sys`, is only logged: `sandcove doctor` says
/// what that means.
pub(super) fn apply() {
    raise("kernel/pid_max", PID_MAX);
    raise("kernel/pty/max", jail::TERMINALS * SANDBOXES);
    raise("fs/inotify/max_user_instances", u64::from(jail::INOTIFY_INSTANCES) * SANDBOXES);
    raise("fs/inotify/max_user_watches", u64::from(jail::INOTIFY_WATCHES) * SANDBOXES);
    change("vm/oom_dump_tasks", |_| Some(0));
}

fn raise(setting: &str, wanted: u64) {
    change(setting, |now| (now < wanted).then_some(wanted));
}

fn change(setting: &str, wanted: impl Fn(u64) -> Option<u64>) {
    let path = Path::new("/proc/sys").join(setting);
    let changed = read(&path).and_then(|now| match wanted(now) {
        Some(value) if value != now => std::fs::write(&path, value.to_string()),
        _ => Ok(()),
    });
    if let Err(error) = changed {
        tracing::warn!(%error, path = %path.display(), "failed to change a setting of the kernel");
    }
}

fn read(path: &Path) -> io::Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}
