//! The parts of a data directory that belong to the command: the lock of its server, and how to reach that server.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sandcove_client::Client;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};

/// `server.json`: how programs on this machine reach the server of a data directory. It stays when the server stops,
/// because the key is stored nowhere else in full.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerFile {
    /// Address of the server, `http://host:port`.
    pub url: String,
    /// A key of the default team.
    pub api_key: Secret,
    /// Process that wrote the file.
    pub pid: u32,
    /// How clients reach the server by name, if it takes TLS.
    #[serde(default)]
    pub names: Option<Names>,
}

/// How clients reach a server by name and with TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// Domain of `api.<domain>` and of sandboxes; with a port unless clients use that of the scheme.
    pub domain: String,
    /// Whether the certificate is of the server's own authority.
    pub is_local: bool,
    /// Records that lead to the server, if it answers DNS for its domain.
    #[serde(default, skip_serializing_if = "Records::is_empty")]
    pub records: Records,
}

/// Records that an operator adds to the DNS, once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Records that leave the domain to the server.
    pub all: Vec<String>,
    /// The one that is enough where the names lead to the server already.
    pub challenge: String,
}

impl Records {
    /// The records of a public name.
    pub fn of(settings: &sandcove_names::Settings) -> Self {
        let (all, challenge) = settings.records();
        Self { all, challenge }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Lines that tell the operator of `domain` to add them.
    pub fn lines(&self, domain: &str) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![format!("this server answers DNS for {domain}; add to the DNS, once:")];
        lines.extend(self.all.iter().map(|record| format!("  {record}")));
        lines.push(format!("or, if {domain} and the names below it lead here already, only:"));
        lines.push(format!("  {}", self.challenge));
        lines
    }
}

/// The directory of the server's own certificate authority.
pub fn tls_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("tls")
}

impl ServerFile {
    fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("server.json")
    }

    /// Reads the file; `None` when no server has run with this data directory.
    pub fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = Self::path(data_dir);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("`{}` is damaged: remove it and start the server", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
        }
    }

    /// Replaces the file, readable by its owner only.
    pub fn write(&self, data_dir: &Path) -> Result<()> {
        let path = Self::path(data_dir);
        let unfinished = data_dir.join(format!(".server.json.{}", self.pid));
        let _ = std::fs::remove_file(&unfinished);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .and_then(|mut file| file.write_all(&serde_json::to_vec_pretty(self)?))
            .and_then(|()| std::fs::rename(&unfinished, &path))
            .with_context(|| format!("failed to write `{}`", path.display()))
    }

    /// A client of the server.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.url, &self.api_key)?)
    }

    /// The client, if the server answers.
    pub async fn reachable(data_dir: &Path) -> Result<Option<(Self, Client)>> {
        let Some(file) = Self::read(data_dir)? else { return Ok(None) };
        let client = file.client()?;
        match tokio::time::timeout(std::time::Duration::from_secs(5), client.ping()).await {
            Ok(Ok(())) => Ok(Some((file, client))),
            _ => Ok(None),
        }
    }
}

/// The exclusive right to serve a data directory, for as long as the lock is held. The file names its holder, and says
/// whether the holder is stopping.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// How long to wait for a holder that is stopping.
const HANDOVER: Duration = Duration::from_secs(60);
/// A holder that was killed looks alive for a moment, so that one look is not proof of life.
const SECOND_LOOK: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(5);

impl Lock {
    /// Creates the directory if needed and takes the lock. Waits for a holder that was killed or is stopping.
    ///
    /// # Errors
    /// When another server holds the lock and keeps running.
    pub fn take(data_dir: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data_dir)
            .with_context(|| format!("failed to create `{}`", data_dir.display()))?;
        let path = data_dir.join("server.lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("failed to open `{}`", path.display()))?;
        let (begun, mut seen_alive) = (Instant::now(), None);
        loop {
            match file.try_lock() {
                Ok(()) => {
                    let lock = Self { file };
                    lock.note(Holder::Serving)
                        .with_context(|| format!("failed to write `{}`", path.display()))?;
                    return Ok(lock);
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("failed to lock `{}`", path.display()));
                }
            }
            let stays = match Holder::read(&file) {
                Holder::Serving => seen_alive.get_or_insert_with(Instant::now).elapsed() >= SECOND_LOOK,
                Holder::Leaving => false,
            };
            if stays || begun.elapsed() > HANDOVER {
                let owner = match ServerFile::read(data_dir) {
                    Ok(Some(file)) => format!(" (process {}, {})", file.pid, file.url),
                    _ => String::new(),
                };
                bail!(
                    "another server is using `{}`{owner}\nhint: `sandcove status` says whether it answers yet; `sandcove down` stops it; --data-dir \
                     names another directory",
                    data_dir.display()
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// Records that the server is stopping: from now on, the next one waits for the lock.
    fn leave(&self) -> std::io::Result<()> {
        self.note(Holder::Leaving)
    }

    /// Records it; a failure is only logged.
    pub fn leave_or_warn(&self) {
        if let Err(error) = self.leave() {
            tracing::warn!(%error, "failed to record in the lock file that this server is stopping");
        }
    }

    fn note(&self, holder: Holder) -> std::io::Result<()> {
        let state = match holder {
            Holder::Serving => "serving",
            Holder::Leaving => "leaving",
        };
        // Padded to the longest text, so that a reader never sees a mixture of two.
        self.file.write_all_at(format!("{:<10} {state}\n", std::process::id()).as_bytes(), 0)
    }

    /// Whether a server holds the lock.
    pub fn is_held(data_dir: &Path) -> bool {
        match File::open(data_dir.join("server.lock")) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => {
                    // For every copy of the descriptor, as in the drop of the lock.
                    let _ = file.unlock();
                    false
                }
                Err(error) => matches!(error, TryLockError::WouldBlock),
            },
            Err(_) => false,
        }
    }
}

/// Dropping unlocks for every copy of the descriptor: a child between its fork and its exec still has one.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Files that a server creates before anything of its start can fail.
const EARLY: [&str; 2] = ["server.log", "server.lock"];

/// A data directory that does not exist before a server starts, and that is to be removed if the start fails early.
#[derive(Debug)]
pub struct Unused<'a>(Option<&'a Path>);

impl<'a> Unused<'a> {
    /// Notes whether the directory exists.
    pub fn note(data_dir: &'a Path) -> Self {
        Self((!data_dir.exists()).then_some(data_dir))
    }

    /// Removes the directory if it has come into existence since, and has nothing but what a failed start leaves; returns whether it has
    /// removed it.
    pub fn remove(self) -> bool {
        let Some(data_dir) = self.0.filter(|data_dir| holds_only(data_dir, &EARLY)) else { return false };
        let Ok(_lock) = Lock::take(data_dir) else { return false };
        holds_only(data_dir, &EARLY)
            && EARLY.iter().all(|name| match std::fs::remove_file(data_dir.join(name)) {
                Ok(()) => true,
                Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            })
            && std::fs::remove_dir(data_dir).is_ok()
    }
}

fn holds_only(directory: &Path, names: &[&str]) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    entries.flatten().all(|entry| names.iter().any(|name| entry.file_name() == *name))
}

/// State of the holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Serving,
    Leaving,
}

impl Holder {
    /// State of the holder of the locked `file`, from the file and from the kernel.
    fn read(file: &File) -> Self {
        let mut text = [0; 64];
        let length = file.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]);
        let mut words = text.split_whitespace();
        let (pid, state) = (words.next().and_then(|pid| pid.parse().ok()), words.next());
        if state == Some("leaving") || pid.is_some_and(is_ending) { Self::Leaving } else { Self::Serving }
    }
}

/// Whether the process `pid` was killed, or has ended but for some of its threads.
fn is_ending(pid: u32) -> bool {
    /// `PF_EXITING` of `linux/sched.h`.
    const EXITING: u32 = 0x4;
    const KILLED: u64 = 1 << 8;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stat = read("stat");
    // The name in field 2 may hold spaces and parentheses; the last `)` ends it.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let has_ended = matches!(fields.first(), Some(&("Z" | "X")));
    let is_exiting =
        fields.get(6).and_then(|flags| flags.parse::<u32>().ok()).is_some_and(|flags| flags & EXITING != 0);
    let is_killed = read("status").lines().any(|line| {
        let pending = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        pending
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & KILLED != 0)
    });
    has_ended || is_exiting || is_killed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A process that holds the lock of `dir` and does nothing else.
    fn holder(dir: &Path, state: &str) -> std::process::Child {
        let path = dir.join("server.lock");
        let mut child = std::process::Command::new("flock")
            .arg("--no-fork")
            .arg(&path)
            .args(["sleep", "600"])
            .spawn()
            .unwrap();
        while !Lock::is_held(dir) {
            assert!(child.try_wait().unwrap().is_none());
        }
        std::fs::write(&path, format!("{} {state}\n", child.id())).unwrap();
        child
    }

    #[test]
    fn a_holder_on_its_way_out_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("server.lock"), "").unwrap();
        // Says that it stops, and does so while it is waited for.
        let mut stopping = holder(dir.path(), "leaving");
        let path = dir.path().to_owned();
        let taking = std::thread::spawn(move || Lock::take(&path).map(drop));
        stopping.kill().unwrap();
        stopping.wait().unwrap();
        taking.join().unwrap().unwrap();
        // Was killed in the middle of its work.
        for _ in 0..50 {
            let mut killed = holder(dir.path(), "serving");
            killed.kill().unwrap();
            Lock::take(dir.path()).unwrap();
            killed.wait().unwrap();
        }
        let mut staying = holder(dir.path(), "serving");
        let error = Lock::take(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("another server is using"), "{error}");
        staying.kill().unwrap();
        staying.wait().unwrap();
    }

    #[test]
    fn two_servers_on_one_directory_are_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert!(Lock::is_held(dir.path()));
        assert!(Lock::take(dir.path()).unwrap_err().to_string().starts_with("another server is using"));
        drop(lock);
        assert!(!Lock::is_held(dir.path()));
        Lock::take(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_that_a_failed_start_has_created_is_removed_unless_something_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let unused = Unused::note(&path);
        drop(Lock::take(&path).unwrap());
        std::fs::write(path.join("server.log"), "error").unwrap();
        assert!(unused.remove());
        assert!(!path.exists());

        let unused = Unused::note(&path);
        drop(Lock::take(&path).unwrap());
        std::fs::write(path.join("pool.id"), "").unwrap();
        assert!(!unused.remove());
        assert!(path.join("pool.id").exists() && path.join("server.lock").exists());

        std::fs::remove_file(path.join("pool.id")).unwrap();
        assert!(!Unused::note(&path).remove(), "it was there before");
        let unused = Unused(Some(&path));
        let lock = Lock::take(&path).unwrap();
        assert!(!unused.remove(), "another server uses it");
        drop(lock);
    }

    #[test]
    fn the_key_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = ServerFile {
            url: "http://127.0.0.1:1".into(),
            api_key: Secret::new("e2b_00"),
            pid: 1,
            names: None,
        };
        file.write(dir.path()).unwrap();
        file.write(dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join("server.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let back = ServerFile::read(dir.path()).unwrap().unwrap();
        assert_eq!((back.url.as_str(), back.api_key.expose(), back.pid), ("http://127.0.0.1:1", "e2b_00", 1));
    }

    #[test]
    fn no_server_is_not_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ServerFile::read(dir.path()).unwrap().is_none());
    }
}
