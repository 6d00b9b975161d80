//! Runs build steps of the templates that come with Sandcove in a chroot. These scripts are our own; build steps of users
//! must run in sandboxes.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::ExitStatus;

use crate::{StepRoot, StepRunner, contained, lines};

/// Script that mounts the root and enters it: `$1` lowers, `$2` upper, `$3` scratch, `$4` the step's script. All mounts
/// are in a mount namespace that ends with the step. The step gets a copy of the resolver configuration and a read-only
/// `/proc/sys`, so it cannot change the host's. Its session has no terminal: where there is one, `sudo` makes another for its programs, which
/// takes `/dev/pts`.
const ENTER: &str = r#"
lowers=$1 upper=$2 scratch=$3 script=$4
root=$scratch/root
mkdir "$root" "$scratch/work"
if [ -n "$lowers" ]; then
  mount -t overlay overlay \
    -o "lowerdir=$lowers,upperdir=$upper,workdir=$scratch/work,redirect_dir=off,metacopy=off,index=off" "$root"
else
  mount --bind "$upper" "$root"
fi
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs tmpfs "$root/tmp"
if [ -e /etc/resolv.conf ]; then
  cp /etc/resolv.conf "$root/dev/resolv.conf"
  mount --bind "$root/dev/resolv.conf" "$root/etc/resolv.conf"
fi
cd /
exec setsid --wait chroot "$root" /bin/bash -c "$script"
"#;

/// Runner of build steps in a chroot with overlayfs and namespaces of its own. Needs root.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChrootRunner {
    in_the_background: bool,
}

impl ChrootRunner {
    /// Creates a runner whose steps have the lowest CPU priority.
    pub fn in_the_background() -> Self {
        Self { in_the_background: true }
    }
}

impl StepRunner for ChrootRunner {
    async fn run(
        &self,
        root: &StepRoot,
        script: &str,
        output: &mut (dyn FnMut(&str) + Send),
    ) -> Result<ExitStatus> {
        let lowers = root.lowers.iter().map(|path| option(path)).collect::<Result<Vec<_>>>()?.join(":");
        let mut command = if self.in_the_background {
            let mut command = contained::command("nice");
            command.args(["-n", "19", "/bin/sh"]);
            command
        } else {
            contained::command("/bin/sh")
        };
        command.args(["-euc", ENTER, "step", &lowers, option(&root.upper)?, option(&root.scratch)?, script]);
        command.env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").env("LANG", "C.UTF-8");
        lines::run(&mut command, output).await
    }
}

/// Checks that a path can be an option of an overlay mount, and returns it as text.
fn option(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(text) if !text.contains([':', ',', '\\', '"']) => Ok(text),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "`{}` cannot be mounted: choose a data directory without : , \\ and quotes",
                path.display()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_root() -> bool {
        std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
    }

    async fn run(root: &StepRoot, script: &str) -> (ExitStatus, String) {
        let mut said = String::new();
        let mut output = |line: &str| {
            said.push_str(line);
            said.push('\n');
        };
        let status = ChrootRunner::default().run(root, script, &mut output).await.unwrap();
        (status, said)
    }

    fn root(dir: &Path) -> StepRoot {
        let root =
            StepRoot { lowers: vec!["/".into()], upper: dir.join("upper"), scratch: dir.join("scratch") };
        std::fs::create_dir(&root.upper).unwrap();
        std::fs::create_dir(&root.scratch).unwrap();
        root
    }

    #[tokio::test]
    async fn changes_go_to_the_upper_layer_and_nowhere_else() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = root(dir.path());
        let script = "echo hello >/made-by-a-step; echo broken >/etc/resolv.conf; echo said";
        let before = std::fs::read("/etc/resolv.conf").unwrap();
        let (status, said) = run(&root, script).await;
        assert!(status.success(), "{said}");
        assert_eq!(said, "said\n");
        assert_eq!(std::fs::read_to_string(root.upper.join("made-by-a-step")).unwrap(), "hello\n");
        assert!(!Path::new("/made-by-a-step").exists());
        assert_eq!(std::fs::read("/etc/resolv.conf").unwrap(), before, "the host's own file must not change");
        assert!(!root.upper.join("etc/resolv.conf").exists());
        assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains(dir.path().to_str().unwrap()));
    }

    #[tokio::test]
    async fn a_step_has_a_session_of_its_own() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        // 0 is a session outside of its namespace, which may have a terminal.
        let (status, said) = run(&root(dir.path()), "cut -d' ' -f6 /proc/$$/stat").await;
        assert!(status.success() && said.trim() != "0", "{said}");
    }

    #[tokio::test]
    async fn kernel_settings_of_the_host_cannot_be_changed() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (status, _) = run(&root(dir.path()), "echo 1 >/proc/sys/vm/drop_caches").await;
        assert!(!status.success());
    }

    #[tokio::test]
    async fn a_dropped_step_dies() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = root(dir.path());
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        // A number by which no other process of this machine is found.
        let seconds = format!("3941.{}", std::process::id());
        {
            let script = format!("echo started; exec sleep {seconds}");
            let mut output = |line: &str| sender.send(line.to_owned()).unwrap();
            let runner = ChrootRunner::default();
            let mut running = std::pin::pin!(runner.run(&root, &script, &mut output));
            tokio::select! {
                ended = &mut running => panic!("ended early: {ended:?}"),
                line = seen.recv() => assert_eq!(line.as_deref(), Some("started")),
            }
        }
        let alive = || {
            std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| line.starts_with(format!("sleep\0{seconds}").as_bytes()))
            })
        };
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        while alive() {
            assert!(tokio::time::Instant::now() < deadline, "the step outlived its caller");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    #[test]
    fn paths_that_would_be_read_as_options_are_refused() {
        assert!(option(Path::new("/a,b")).is_err());
        assert!(option(Path::new("/a:b")).is_err());
        assert!(option(Path::new("/var/lib/sandcove")).is_ok());
    }
}
