//! The checks of `sandcove doctor`. None changes the host; one starts a process and ends it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::thread::CapabilitySet;

use super::{Check, Status, namespaces, storage};
use crate::data_dir::Lock;
use crate::languages::LanguageState;

/// Kernel release from which overlayfs works on idmapped layers.
const OLDEST_KERNEL: (u32, u32) = (5, 19);

/// The smallest table that needs the kernel's connection counter.
const CONNECTION_LIMIT: &str = "table inet sandcove_doctor {
  set connections { type ifname; size 1; flags dynamic; }
  chain forward {
    type filter hook forward priority 0;
    ct state new add @connections { iifname ct count over 1 } drop
  }
}
";

/// Programs started by name, with the Debian package they come in.
const TOOLS: [(&str, &str); 10] = [
    ("mmdebstrap", "mmdebstrap"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("choom", "util-linux"),
    ("tar", "tar"),
];

/// Runs every check.
pub fn all(data_dir: &Path) -> Vec<Check> {
    vec![
        root(),
        kernel(),
        namespaces::known(),
        namespaces::user(),
        filesystem("overlayfs", "overlay", "load the module: modprobe overlay"),
        storage::btrfs(data_dir),
        storage::quotas(data_dir),
        cgroups(),
        fairness(),
        precedence(),
        kernel_settings(),
        nftables(),
        connection_limit(),
        seccomp(),
        tools(),
        storage::space(data_dir),
        languages(data_dir),
        device(
            "tun",
            "/dev/net/tun",
            "load the module (modprobe tun); tunnels and VPNs inside sandboxes need it",
        ),
        device(
            "fuse",
            "/dev/fuse",
            "load the module (modprobe fuse); FUSE file systems inside sandboxes need it",
        ),
        device("kvm", "/dev/kvm", "not needed: sandboxes use namespaces"),
        criu(data_dir),
    ]
}

fn languages(data_dir: &Path) -> Check {
    let state = LanguageState::read(data_dir);
    let runs = Lock::is_held(data_dir);
    let found = match &state {
        Some(state) => state.describe(runs),
        None => "R, Java and Ruby will be built after the first start".to_owned(),
    };
    let hint = "find the reason in server.log in the data directory, then restart the server";
    let holds = !matches!(state, Some(LanguageState::Failed { .. }));
    Check::when(holds, "languages", found, Status::Warn, hint)
}

fn root() -> Check {
    let root = rustix::process::geteuid().is_root();
    let found = if root { "running as root" } else { "not running as root" };
    Check::when(
        root,
        "privileges",
        found,
        Status::Missing,
        "start the server as root; sandboxes do not run as root",
    )
}

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let good = version(&release).is_some_and(|version| version >= OLDEST_KERNEL);
    let hint = "use Linux 5.19 or newer: overlayfs on older kernels cannot use idmapped layers";
    Check::when(good, "kernel", format!("linux {}", release.trim()), Status::Missing, hint)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn filesystem(name: &'static str, kind: &str, hint: &'static str) -> Check {
    let (known, found) = match (knows_filesystem(kind), has_module(kind)) {
        (true, _) => (true, "supported by the kernel".to_owned()),
        (false, true) => (true, "a module that the kernel loads when it is used".to_owned()),
        (false, false) => (false, format!("{kind} is not supported by the kernel, or not loaded")),
    };
    Check::when(known, name, found, Status::Warn, hint)
}

/// Whether the running kernel has a module of this name, loaded or not.
pub(super) fn has_module(name: &str) -> bool {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let list = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
    read(list).is_some_and(|list| lists_module(&list, name))
}

/// Whether a list in the format of `modules.dep`, `path: paths of what it needs`, has the module.
fn lists_module(list: &str, name: &str) -> bool {
    let modules = list.lines().filter_map(|line| line.split(':').next()?.rsplit('/').next());
    modules.filter_map(|file| file.split_once(".ko")).any(|(module, _)| module == name)
}

pub(super) fn knows_filesystem(kind: &str) -> bool {
    read("/proc/filesystems")
        .is_some_and(|text| text.lines().any(|line| line.split_whitespace().last() == Some(kind)))
}

fn cgroups() -> Check {
    let wanted = ["cpu", "memory", "pids"];
    let root = Path::new("/sys/fs/cgroup");
    let unified = read(root.join("cgroup.controllers"));
    let (version, present): (_, Vec<&str>) = match &unified {
        Some(controllers) => {
            let has = |name: &&str| controllers.split_whitespace().any(|controller| controller == *name);
            ("version 2", wanted.into_iter().filter(has).collect())
        }
        None => ("version 1", wanted.into_iter().filter(|name| root.join(name).is_dir()).collect()),
    };
    let found = format!(
        "{version}, {}",
        if present.is_empty() { "no controllers".to_owned() } else { present.join(" ") }
    );
    let hint = "enable the controllers cpu, memory and pids for the server's cgroup";
    Check::when(present.len() == wanted.len(), "cgroups", found, Status::Missing, hint)
}

/// Optional features of control groups that keep one sandbox from slowing down others.
fn fairness() -> Check {
    let root = Path::new("/sys/fs/cgroup");
    let (sockets, io) = match read(root.join("cgroup.controllers")) {
        Some(controllers) => (true, controllers.split_whitespace().any(|controller| controller == "io")),
        // Version 1 does not know on whose behalf it writes to disks.
        None => (root.join("memory/memory.kmem.tcp.limit_in_bytes").exists(), false),
    };
    let found = match (sockets, io) {
        (true, true) => "limits of socket buffers and of unwritten data",
        (true, false) => "limits of socket buffers; unwritten data of all sandboxes together",
        (false, true) => "limits of unwritten data; none of socket buffers",
        (false, false) => "no limits of socket buffers; unwritten data of all sandboxes together",
    };
    let hint = "boot with control groups of version 2, and enable the controller io for the server's cgroup; without them one \
                sandbox can slow down the disk or the network of others";
    Check::when(sockets && io, "fairness", found, Status::Warn, hint)
}

/// Rights to run before sandboxes, and to be killed after them when memory runs out.
fn precedence() -> Check {
    let wanted =
        [(CapabilitySet::SYS_NICE, "CAP_SYS_NICE"), (CapabilitySet::SYS_RESOURCE, "CAP_SYS_RESOURCE")];
    let held = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let missing: Vec<&str> =
        wanted.into_iter().filter(|(right, _)| !held.contains(*right)).map(|(_, name)| name).collect();
    let found = if missing.is_empty() {
        "the server runs before sandboxes and is killed after them".to_owned()
    } else {
        format!("without {}", missing.join(" and "))
    };
    let hint = "start the server with both rights; without them sandboxes slow it down more, or the kernel may kill it when \
                memory runs out";
    Check::when(missing.is_empty(), "precedence", found, Status::Warn, hint)
}

/// Settings that a server changes when it starts.
fn kernel_settings() -> Check {
    let lacking = sandcove_isolate::lacking_kernel_settings().join(" ");
    let found = match lacking.is_empty() {
        true => "as sandboxes need them".to_owned(),
        false => format!("without {lacking}"),
    };
    let hint = "start a server, which changes them; where /proc/sys is read-only, set them on the host with `sysctl -w`";
    Check::when(lacking.is_empty(), "kernel settings", found, Status::Warn, hint)
}

fn nftables() -> Check {
    let hint =
        "install nftables, and use a kernel with nf_tables; the network of sandboxes is filtered with it";
    match nft(&["list", "tables"], "") {
        Ok(()) => Check::ok("nftables", "nft works"),
        Err(found) => Check::when(false, "nftables", found, Status::Missing, hint),
    }
}

fn connection_limit() -> Check {
    let hint = "load the module (modprobe nft_connlimit), or use a kernel with CONFIG_NFT_CONNLIMIT; the connections of \
                a sandbox are limited with it";
    match nft(&["--check", "--file", "-"], CONNECTION_LIMIT) {
        Ok(()) => Check::ok("connection limit", "supported by the kernel (connlimit)"),
        Err(found) => Check::when(false, "connection limit", found, Status::Missing, hint),
    }
}

/// Runs nft with `script` as standard input; the error is its first line.
fn nft(arguments: &[&str], script: &str) -> Result<(), String> {
    let run = || {
        let pipes = || Stdio::piped();
        let mut nft = Command::new("nft")
            .args(arguments)
            .stdin(pipes())
            .stdout(Stdio::null())
            .stderr(pipes())
            .spawn()?;
        if let Some(mut stdin) = nft.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        nft.wait_with_output()
    };
    match run() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(first_line(&output)),
        Err(error) => Err(format!("nft: {error}")),
    }
}

/// The first line of what a program that failed wrote, or its status: a program that a signal ended may have written nothing.
pub(super) fn first_line(output: &Output) -> String {
    let written = String::from_utf8_lossy(&output.stderr);
    written.lines().next().map_or_else(|| output.status.to_string(), str::to_owned)
}

fn seccomp() -> Check {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail");
    let found = actions.as_deref().map_or("not available", |_| "filters available");
    Check::when(
        actions.is_some(),
        "seccomp",
        found,
        Status::Missing,
        "use a kernel with CONFIG_SECCOMP_FILTER",
    )
}

fn tools() -> Check {
    let mut missing: Vec<&str> =
        TOOLS.into_iter().filter(|(tool, _)| find(tool).is_none()).map(|(_, package)| package).collect();
    missing.dedup();
    let found = if missing.is_empty() {
        "all installed".to_owned()
    } else {
        format!("not installed: {}", missing.join(" "))
    };
    Check::when(
        missing.is_empty(),
        "tools",
        found,
        Status::Missing,
        "install the packages; on Debian or Ubuntu: apt-get install",
    )
}

fn device(name: &'static str, path: &str, hint: &'static str) -> Check {
    let present = Path::new(path).exists();
    let found = if present { path.to_owned() } else { format!("no {path}") };
    Check::when(present, name, found, Status::Warn, hint)
}

/// Stores a process on disk and restores it.
fn criu(data_dir: &Path) -> Check {
    const NOT_NEEDED: &str = "not needed: without it, paused sandboxes have their memory while the host is up; `make up` fetches it";
    let directory = std::env::var_os("SANDCOVE_CRIU").map_or_else(|| data_dir.join("criu"), PathBuf::from);
    if !directory.is_dir() {
        let text = format!("none in {}", directory.display());
        return Check::when(false, "criu", text, Status::Warn, NOT_NEEDED);
    }
    let scratch = std::env::temp_dir().join(format!("sandcove-doctor-{}", std::process::id()));
    let probed = std::fs::create_dir(&scratch).map_err(|error| error.to_string()).and_then(|()| {
        let probed = sandcove_isolate::probe_criu(&directory, &scratch);
        let _ = std::fs::remove_dir_all(&scratch);
        probed.map_err(|error| error.to_string())
    });
    let text = match &probed {
        Ok(version) => format!("{version}, stores a process and restores it"),
        Err(reason) => reason.clone(),
    };
    Check::when(probed.is_ok(), "criu", text, Status::Warn, NOT_NEEDED)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_as_numbers() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.9-rc1\n"), Some((5, 9)));
        assert!(version("6.1.0").unwrap() > OLDEST_KERNEL);
        assert!(version("5.9").unwrap() < OLDEST_KERNEL);
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn a_program_that_a_signal_ended_is_named_with_it() {
        let line = |script: &str| first_line(&Command::new("sh").args(["-c", script]).output().unwrap());
        assert_eq!(line("kill -9 $$"), "signal: 9 (SIGKILL)");
        assert_eq!(line("echo first >&2; echo second >&2; exit 1"), "first");
    }

    #[test]
    fn modules_that_are_not_loaded_are_found() {
        let list = "kernel/fs/overlayfs/overlay.ko:\nkernel/fs/btrfs/btrfs.ko.xz: kernel/lib/xor.ko.xz kernel/lib/raid6.ko.xz\n";
        assert!(lists_module(list, "overlay") && lists_module(list, "btrfs"));
        // What another module needs has a line of its own, if it is there.
        assert!(!lists_module(list, "xor") && !lists_module(list, "over") && !lists_module("", "btrfs"));
    }
}
