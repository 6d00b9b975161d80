//! What is planted on this host, for sandboxes that run on it: a canary, and a place where nothing may be written.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum wait for the processes of an ended sandbox to be gone.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A directory in `/tmp` with a canary, deleted when this is dropped.
#[derive(Debug)]
pub(super) struct Planted {
    directory: PathBuf,
    pub(super) canary: String,
}

impl Planted {
    /// Plants a canary under a name that nobody can guess.
    pub(super) fn plant() -> std::io::Result<Self> {
        let directory = PathBuf::from(format!("/tmp/sandcove-redteam-{}", random()));
        std::fs::create_dir(&directory)?;
        let planted = Self { directory, canary: format!("canary-{}", random()) };
        std::fs::write(planted.file(), &planted.canary)?;
        // Whoever gets here may read and write: only walls should stop it.
        std::fs::set_permissions(&planted.directory, std::fs::Permissions::from_mode(0o777))?;
        std::fs::set_permissions(planted.file(), std::fs::Permissions::from_mode(0o666))?;
        Ok(planted)
    }

    /// Returns the path of the canary.
    pub(super) fn file(&self) -> PathBuf {
        self.directory.join("secret")
    }

    /// Returns the path that nothing may write.
    pub(super) fn mark(&self) -> PathBuf {
        self.directory.join("mark")
    }

    /// Returns what was written here, if anything was.
    pub(super) fn written(&self) -> Option<String> {
        if self.mark().exists() {
            return Some(format!("the file `{}` was written on the host", self.mark().display()));
        }
        match std::fs::read_to_string(self.file()) {
            Ok(text) if text == self.canary => None,
            _ => Some(format!("the file `{}` was changed on the host", self.file().display())),
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns 32 random hexadecimal digits.
pub(super) fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Whether a URL is of this host.
pub fn is_here(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "localhost" | "[::1]") || host.starts_with("127.")
}

/// Returns addresses of this host: the loopback's, and the one that routes leave from. Nothing is sent.
pub(super) fn addresses() -> Vec<String> {
    let mut all = vec!["127.0.0.1".to_owned()];
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    if let Ok(address) = outward.map(|address| address.ip().to_string())
        && !all.contains(&address)
    {
        all.push(address);
    }
    all
}

/// Whether a process of a sandbox with `token` in its command line is one of this host: then the sandbox shares the host's kernel.
pub(super) fn shares_kernel(token: &str) -> bool {
    !processes_with(token).is_empty()
}

/// Waits until no process of this host has `token` in its command line or its environment; the processes that still do at the time limit.
pub(super) async fn outlived(token: &str) -> Vec<String> {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let found = processes_with(token);
        if found.is_empty() || tokio::time::Instant::now() >= deadline {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn processes_with(token: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let holds = |name: &str| {
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            bytes.windows(token.len()).any(|window| window == token.as_bytes())
        };
        if holds("cmdline") || holds("environ") {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("process {pid} ({})", name.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_what_is_planted_are_seen() {
        let planted = Planted::plant().unwrap();
        assert_eq!(planted.written(), None);
        std::fs::write(planted.mark(), "x").unwrap();
        assert!(planted.written().unwrap().contains("was written"));
        std::fs::remove_file(planted.mark()).unwrap();
        std::fs::write(planted.file(), "x").unwrap();
        assert!(planted.written().unwrap().contains("was changed"));
        let directory = planted.directory.clone();
        drop(planted);
        assert!(!directory.exists());
    }

    #[test]
    fn addresses_of_this_host_are_known() {
        for url in ["http://127.0.0.1:3000", "http://localhost:3000/x", "http://127.1.2.3"] {
            assert!(is_here(url), "{url}");
        }
        for url in ["https://api.e2b.dev", "http://10.0.0.1:3000", "http://localhost.example:1"] {
            assert!(!is_here(url), "{url}");
        }
        assert!(addresses().contains(&"127.0.0.1".to_owned()));
    }

    #[tokio::test]
    async fn processes_are_found_by_their_arguments() {
        let token = random();
        let mut child = std::process::Command::new("sleep").arg("600").env("PROBE", &token).spawn().unwrap();
        assert!(processes_with(&token)[0].contains("sleep"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(outlived(&token).await, Vec::<String>::new());
    }
}
