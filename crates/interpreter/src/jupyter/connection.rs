//! The connection file of a kernel: the five ports it listens on and the key it signs with.

use std::collections::HashSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;
use uuid::Uuid;

use super::message::Key;

/// Range of the ports. It lies below the ports the system gives to outgoing connections: one of those could be taken meanwhile,
/// and dialling one that nobody listens on yet can connect a socket to itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Counts the ports tried so far. They are tried in turn, so that two kernels that start at the same time get different ones.
static TRIED: LazyLock<AtomicU16> =
    LazyLock::new(|| AtomicU16::new(u16::try_from(std::process::id() & 0xffff).unwrap_or(0)));

/// The ports of one kernel, without that of the heartbeat: a dead process is noticed sooner through its pidfd.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// Requests, in order.
    pub shell: u16,
    /// Requests that do not wait for those on `shell`.
    pub control: u16,
    /// Messages that the kernel publishes.
    pub iopub: u16,
    /// The kernel's requests for input.
    pub stdin: u16,
}

/// A connection file and its contents. Dropping it removes the file.
#[derive(Debug)]
pub struct Connection {
    /// Ports that the kernel listens on.
    pub ports: Ports,
    /// Key that signs messages.
    pub key: Key,
    /// Name by which the sockets of the kernel know this client.
    pub identity: String,
    /// Path of the file.
    pub file: PathBuf,
}

impl Connection {
    /// Chooses unused ports and writes a file into `directory`, which is created if it is missing. Only this account may read
    /// the file: the key gives access to the kernel.
    ///
    /// # Errors
    /// If no ports are free or the file cannot be written.
    pub fn create(directory: &Path) -> io::Result<Self> {
        let [shell, control, iopub, stdin, heartbeat] = free_ports()?;
        let (secret, identity) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let contents = json!({
            "transport": "tcp", "ip": "127.0.0.1", "signature_scheme": "hmac-sha256", "key": secret, "kernel_name": "",
            "shell_port": shell, "control_port": control, "iopub_port": iopub, "stdin_port": stdin, "hb_port": heartbeat,
        });
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let file = directory.join(format!("kernel-{identity}.json"));
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        written.write_all(contents.to_string().as_bytes())?;
        let key = Key::new(&secret, &identity);
        Ok(Self { ports: Ports { shell, control, iopub, stdin }, key, identity, file })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Kernels that ended normally have removed it themselves.
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Finds unused ports in the tables of the system. Binding them to try would be a mistake: a listener of ours, however short, can
/// be inherited by a process that is being started, and then the kernel cannot listen.
fn free_ports() -> io::Result<[u16; 5]> {
    let used = ports_in_use();
    let mut ports = std::iter::repeat_with(|| {
        PORTS.start + TRIED.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
    });
    let mut free = ports.by_ref().take(PORTS.len()).filter(|port| !used.contains(port));
    let mut next =
        || free.next().ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free ports for a kernel"));
    Ok([next()?, next()?, next()?, next()?, next()?])
}

/// Local ports of all TCP sockets in this network namespace.
fn ports_in_use() -> HashSet<u16> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1).filter_map(local_port)).collect()
}

/// Reads a line of a table. The second column is the local address, `<address>:<port>` in hexadecimal digits.
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.split_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_file_is_private_and_removed_with_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let connection = Connection::create(&root.path().join("runtime")).unwrap();
        let file = connection.file.clone();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let contents: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(contents["shell_port"], connection.ports.shell);
        let key = contents["key"].as_str().unwrap();
        assert!(!format!("{connection:?}").contains(key), "the key shows");
        drop(connection);
        assert!(!file.exists());
    }

    #[test]
    fn ports_in_use_are_seen() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(ports_in_use().contains(&listener.local_addr().unwrap().port()));
        let line = "  0: 0100007F:C350 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1 0 100 0 0 10 0";
        assert_eq!(local_port(line), Some(50_000));
        assert_eq!(local_port("nonsense"), None);
    }

    #[test]
    fn ports_differ_and_are_not_those_of_outgoing_connections() {
        let mut ports = free_ports().unwrap().to_vec();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        ports.sort_unstable();
        ports.extend(free_ports().unwrap());
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 10);
    }
}
