//! What generated code may not do, by language, before it is run anywhere.

use serde::Deserialize;

/// Something in the code that the policy forbids.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Finding {
    /// Counted from 1.
    pub(super) line: usize,
    /// The action of the code, e.g. `calls os.system`.
    pub(super) what: String,
}

/// The policy as a suite states it. Lists are added to those of the profile; `allow` takes entries out again.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicySettings {
    profile: Profile,
    deny_imports: Vec<String>,
    deny_calls: Vec<String>,
    deny_paths: Vec<String>,
    /// If given, everything else is denied.
    allow_imports: Option<Vec<String>>,
    /// Entries of the lists of the profile that are fine.
    allow: Vec<String>,
}

/// The base that a policy extends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Profile {
    /// Network, other programs, code made of text, system files.
    #[default]
    Default,
    /// Also files, native code, and looking around in the interpreter.
    Strict,
    /// Only the lists of the suite.
    None,
}

/// The policy for one language.
#[derive(Debug, Clone, Default)]
pub(super) struct Policy {
    deny_imports: Vec<String>,
    deny_calls: Vec<String>,
    deny_paths: Vec<String>,
    allow_imports: Option<Vec<String>>,
}

struct Lists {
    imports: &'static [&'static str],
    calls: &'static [&'static str],
    paths: &'static [&'static str],
}

const NOTHING: Lists = Lists { imports: &[], calls: &[], paths: &[] };

const PYTHON: Lists = Lists {
    imports: &["socket", "requests", "urllib", "subprocess"],
    calls: &[
        "os.system",
        "os.popen",
        "os.exec*",
        "os.spawn*",
        "os.posix_spawn*",
        "os.fork",
        "os.forkpty",
        "pty.spawn",
        "subprocess",
        "eval",
        "exec",
        "__import__",
    ],
    paths: &["/etc", "/proc"],
};

const PYTHON_STRICT: Lists = Lists {
    imports: &[
        "http",
        "ftplib",
        "smtplib",
        "telnetlib",
        "ssl",
        "asyncio.subprocess",
        "aiohttp",
        "httpx",
        "urllib3",
        "ctypes",
        "cffi",
        "multiprocessing",
        "pickle",
        "marshal",
        "importlib",
        "inspect",
        "gc",
        "shutil",
    ],
    calls: &[
        "compile",
        "open",
        "os.environ",
        "os.getenv",
        "os.remove",
        "os.unlink",
        "os.rmdir",
        "globals",
        "sys._getframe",
    ],
    paths: &["/"],
};

const JAVASCRIPT: Lists = Lists {
    imports: &[
        "child_process",
        "cluster",
        "worker_threads",
        "net",
        "tls",
        "dgram",
        "dns",
        "http",
        "https",
        "http2",
        "axios",
        "node-fetch",
        "undici",
        "vm",
    ],
    calls: &["eval", "Function", "fetch", "XMLHttpRequest", "WebSocket", "process.binding", "process.kill"],
    paths: &["/etc", "/proc"],
};

const JAVASCRIPT_STRICT: Lists = Lists {
    imports: &["fs", "os", "module", "inspector"],
    calls: &["process.env", "process.exit", "globalThis"],
    paths: &["/"],
};

const BASH: Lists = Lists {
    imports: &[],
    calls: &[
        "curl", "wget", "nc", "ncat", "socat", "ssh", "scp", "rsync", "telnet", "ftp", "eval", "sudo", "su",
        "dd", "mkfs*", "mount", "shutdown", "reboot", "nsenter", "unshare",
    ],
    paths: &["/etc", "/proc", "/dev/tcp", "/dev/udp"],
};

const BASH_STRICT: Lists = Lists {
    imports: &[],
    calls: &["rm", "chmod", "chown", "kill", "env", "printenv", "crontab"],
    paths: &["/"],
};

impl PolicySettings {
    /// The policy for a language of the interpreter.
    pub(super) fn for_language(&self, language: &str) -> Policy {
        let (plain, strict) = match language {
            "python" => (PYTHON, PYTHON_STRICT),
            "javascript" | "typescript" => (JAVASCRIPT, JAVASCRIPT_STRICT),
            "bash" => (BASH, BASH_STRICT),
            _ => (NOTHING, NOTHING),
        };
        let chosen = match self.profile {
            Profile::None => vec![],
            Profile::Default => vec![plain],
            Profile::Strict => vec![plain, strict],
        };
        let list = |of: fn(&Lists) -> &'static [&'static str], more: &[String]| -> Vec<String> {
            let built_in = chosen.iter().flat_map(|lists| of(lists).iter().map(|entry| (*entry).to_owned()));
            built_in.filter(|entry| !self.allow.contains(entry)).chain(more.iter().cloned()).collect()
        };
        Policy {
            deny_imports: list(|lists| lists.imports, &self.deny_imports),
            deny_calls: list(|lists| lists.calls, &self.deny_calls),
            deny_paths: list(|lists| lists.paths, &self.deny_paths),
            allow_imports: self.allow_imports.clone(),
        }
    }
}

impl Policy {
    /// Whether a module may not be imported: it, or one it is part of, is listed.
    pub(super) fn denies_import(&self, module: &str) -> bool {
        let listed = |list: &[String]| list.iter().any(|entry| is_part_of(module, entry));
        listed(&self.deny_imports) || self.allow_imports.as_deref().is_some_and(|allowed| !listed(allowed))
    }

    /// Whether a dotted name may not be called; entries may end in `*`.
    pub(super) fn denies_call(&self, name: &str) -> bool {
        self.deny_calls.iter().any(|entry| match entry.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => is_part_of(name, entry),
        })
    }

    /// Whether a path is listed or below one that is.
    pub(super) fn denies_path(&self, path: &str) -> bool {
        self.deny_paths.iter().any(|entry| {
            let entry = entry.trim_end_matches('/');
            path.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Whether `name` is `whole` or, by dots or slashes, below it.
fn is_part_of(name: &str, whole: &str) -> bool {
    name.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_match_whole_names() {
        let policy = PolicySettings::default().for_language("python");
        assert!(policy.denies_import("urllib.request") && !policy.denies_import("urllib3"));
        assert!(policy.denies_call("os.execve") && !policy.denies_call("os.path.join"));
        assert!(policy.denies_path("/etc/passwd") && !policy.denies_path("/etcetera"));
    }

    #[test]
    fn a_suite_adds_and_takes_away() {
        let settings = PolicySettings {
            deny_imports: vec!["numpy".to_owned()],
            allow: vec!["eval".to_owned()],
            allow_imports: Some(vec!["math".to_owned(), "numpy".to_owned()]),
            ..PolicySettings::default()
        };
        let policy = settings.for_language("python");
        assert!(
            policy.denies_import("numpy.linalg")
                && policy.denies_import("json")
                && !policy.denies_import("math")
        );
        assert!(!policy.denies_call("eval") && policy.denies_call("exec"));
    }
}
