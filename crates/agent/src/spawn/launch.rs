//! The description of a program to start, with all memory that the start needs allocated beforehand.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;

use super::{SpawnError, shell};
use crate::account::Account;

/// Value of `PATH` when the daemon itself has none.
const FALLBACK_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The user a program runs under.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

impl Credentials {
    /// The credentials of `account`; `None` when the daemon already runs as that user and cannot change (run by hand).
    pub fn of(account: &Account) -> Option<Self> {
        let own = rustix::process::geteuid();
        if !own.is_root() && own.as_raw() == account.uid {
            return None;
        }
        Some(Self { uid: account.uid, gid: account.gid, groups: account.groups.clone() })
    }
}

/// The ends of the standard streams that the program gets.
#[derive(Debug)]
pub enum Stdio {
    /// Standard input, output and error.
    Streams([OwnedFd; 3]),
    /// A terminal for all three, which becomes the controlling terminal of a new session.
    Terminal(OwnedFd),
}

/// The priorities of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controls {
    /// The daemon's own priorities.
    Inherited,
    /// Neutral priorities whatever the daemon's are, and killed first when memory runs out.
    Workload,
}

/// A program that is ready to be started.
#[derive(Debug)]
pub struct Launch {
    /// Paths to try, in order.
    pub(super) candidates: Vec<CString>,
    pub(super) arguments: Vec<CString>,
    pub(super) environment: Vec<CString>,
    pub(super) directory: CString,
    pub(super) credentials: Option<Credentials>,
    pub(super) controls: Controls,
    /// Texts for standard error when no candidate exists, or none may be run.
    pub(super) not_found: Vec<u8>,
    pub(super) not_executable: Vec<u8>,
}

impl Launch {
    /// Prepares `command` with `arguments`, looked up in the `PATH` of `environment` unless it contains a slash. Where `/bin/bash` is
    /// missing, another shell takes its place, or none if a plain command needs none.
    pub fn new(
        command: &str,
        arguments: &[String],
        environment: &BTreeMap<String, String>,
        directory: &str,
        credentials: Option<Credentials>,
        controls: Controls,
    ) -> Result<Self, SpawnError> {
        let (command, arguments) = shell::present(command, arguments);
        let command = command.as_ref();
        let path = environment.get("PATH").map_or(FALLBACK_PATH, String::as_str);
        let mut all = vec![c_string("command", command)?];
        for argument in arguments.iter() {
            all.push(c_string("argument", argument)?);
        }
        let mut variables = Vec::with_capacity(environment.len());
        for (name, value) in environment {
            variables.push(c_string("variable", &format!("{name}={value}"))?);
        }
        let candidates = candidates(command, path).into_iter().map(|c| c_string("command", &c));
        Ok(Self {
            candidates: candidates.collect::<Result<_, _>>()?,
            arguments: all,
            environment: variables,
            directory: c_string("working directory", directory)?,
            credentials,
            controls,
            not_found: format!("exec: {command}: not found\n").into_bytes(),
            not_executable: format!("exec: {command}: permission denied\n").into_bytes(),
        })
    }

    /// The working directory, for messages about it.
    pub fn directory(&self) -> String {
        self.directory.to_string_lossy().into_owned()
    }
}

/// The daemon's own `PATH`, the base of every program's.
pub fn daemon_path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| FALLBACK_PATH.to_owned())
}

fn candidates(command: &str, path: &str) -> Vec<String> {
    if command.is_empty() {
        return Vec::new();
    }
    if command.contains('/') {
        return vec![command.to_owned()];
    }
    // An empty entry of PATH is the working directory.
    let entries = path.split(':').map(|entry| if entry.is_empty() { "." } else { entry });
    entries.map(|entry| format!("{entry}/{command}")).collect()
}

fn c_string(what: &'static str, value: &str) -> Result<CString, SpawnError> {
    CString::new(value).map_err(|_| SpawnError::ZeroByte { what, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_looked_up_as_a_shell_does() {
        assert_eq!(candidates("ls", "/a:/b"), ["/a/ls", "/b/ls"]);
        assert_eq!(candidates("./ls", "/a"), ["./ls"]);
        assert_eq!(candidates("ls", ":/b"), ["./ls", "/b/ls"]);
        assert!(candidates("", "/a").is_empty());
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let launch = Launch::new("a\0b", &[], &BTreeMap::new(), "/", None, Controls::Inherited);
        assert_eq!(launch.unwrap_err().to_string(), "command `a\\u{0}b` holds a zero byte");
    }
}
