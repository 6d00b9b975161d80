//! How a kernel is told where to listen and which key to sign with: five ports and a file that names them.

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

/// Where ports are taken from. Below those the system gives to outgoing connections: a port of these could be taken meanwhile,
/// and dialling one that nobody listens on yet can end in a connection with oneself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How many ports were looked at. They are taken in turn, so that two kernels that start at the same time get different ones.
static LOOKED_AT: LazyLock<AtomicU16> =
    LazyLock::new(|| AtomicU16::new(u16::try_from(std::process::id() & 0xffff).unwrap_or(0)));

/// The ports of one kernel. The heartbeat's is not among them: a process that dies is noticed sooner by other means.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// Requests.
    pub shell: u16,
    /// Requests that do not wait for those.
    pub control: u16,
    /// What it publishes.
    pub iopub: u16,
    /// Its questions.
    pub stdin: u16,
}

/// A connection file, which goes when this is dropped.
#[derive(Debug)]
pub struct Connection {
    /// Where it listens.
    pub ports: Ports,
    /// What it signs with.
    pub key: Key,
    /// Its sockets know us by this.
    pub identity: String,
    /// The file.
    pub file: PathBuf,
}

impl Connection {
    /// Chooses ports that nobody uses and writes a file into `directory`, which is made if it is missing. Nobody else may
    /// read it: whoever has the key can run code in the kernel.
    ///
    /// # Errors
    /// When no ports are free or the file cannot be written.
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
        // Kernels that end in order have removed it themselves.
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Ports that nobody uses. They are not tried: a listener of ours, however short, can be inherited by a process that is being
/// started, and then the kernel cannot listen.
fn free_ports() -> io::Result<[u16; 5]> {
    let used = ports_in_use();
    let mut ports = std::iter::repeat_with(|| {
        PORTS.start + LOOKED_AT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
    });
    let mut free = ports.by_ref().take(PORTS.len()).filter(|port| !used.contains(port));
    let mut next =
        || free.next().ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free ports for a kernel"));
    Ok([next()?, next()?, next()?, next()?, next()?])
}

/// Local ports of all TCP sockets, as far as the system tells.
fn ports_in_use() -> HashSet<u16> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1).filter_map(local_port)).collect()
}

/// The second column is the local address, `<address>:<port>` in hexadecimal digits.
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
    fn the_file_is_ours_alone_and_goes_with_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let connection = Connection::create(&root.path().join("runtime")).unwrap();
        let file = connection.file.clone();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(told["shell_port"], connection.ports.shell);
        let key = told["key"].as_str().unwrap();
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
