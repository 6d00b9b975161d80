//! Settings of the interpreter, read once at start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use sandcove_wire::boot::{
    AGENT_PORT, ENV_LANGUAGES_BUILDING, ENV_PYTHON, ENV_WARM_MODULES, ENV_WARM_UP, ENV_ZYGOTE,
    INTERPRETER_PORT,
};

/// Address to serve on; default `0.0.0.0:49999`.
pub const ENV_LISTEN: &str = "SANDCOVE_INTERPRETER_LISTEN";
/// Directory that holds the `sandcove_kernel` package; default `python` beside this program.
pub const ENV_PYTHON_DIR: &str = "SANDCOVE_INTERPRETER_PYTHON_DIR";
/// Address of the agent, which knows the global variables; default `127.0.0.1:49983`.
pub const ENV_AGENT: &str = "SANDCOVE_INTERPRETER_AGENT";
/// Prefix of Sandcove's own variables. Kernels do not see them.
const OWN: &str = "SANDCOVE_";

/// Directory contexts start in when the client names none.
pub const DEFAULT_DIRECTORY: &str = "/home/user";

/// The settings of an interpreter.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to serve on.
    pub listen: SocketAddr,
    /// Program of a zygote that is started here; default `python3` from the search path.
    pub python: OsString,
    /// Directory that holds the Python package of the kernel host.
    pub python_dir: PathBuf,
    /// Address of the agent.
    pub agent: SocketAddr,
    /// Whether standard input is the control socket of a zygote that the host has forked into this sandbox.
    pub zygote_on_stdin: bool,
    /// Whether there is time for the first kernel to warm up before a client uses it.
    pub warm_up: bool,
    /// Whether the template was still without its further languages when this sandbox was created.
    pub languages_building: bool,
    /// Modules that a zygote which is started here imports, if the template names them.
    pub warm_modules: Option<OsString>,
    /// Environment of kernels, before global and per-call variables.
    pub environment: BTreeMap<OsString, OsString>,
}

impl Config {
    /// Reads the settings from the environment of this process.
    pub fn from_env() -> anyhow::Result<Self> {
        let python_dir = match std::env::var_os(ENV_PYTHON_DIR) {
            Some(path) => path.into(),
            None => {
                let program = std::env::current_exe().context("failed to find the path of this program")?;
                program.with_file_name("python")
            }
        };
        Ok(Self {
            listen: address(ENV_LISTEN, SocketAddr::from(([0, 0, 0, 0], INTERPRETER_PORT)))?,
            python: std::env::var_os(ENV_PYTHON).unwrap_or_else(|| "python3".into()),
            python_dir,
            zygote_on_stdin: std::env::var_os(ENV_ZYGOTE).is_some(),
            warm_up: std::env::var_os(ENV_WARM_UP).is_some(),
            warm_modules: std::env::var_os(ENV_WARM_MODULES),
            languages_building: std::env::var_os(ENV_LANGUAGES_BUILDING).is_some(),
            agent: address(ENV_AGENT, SocketAddr::from(([127, 0, 0, 1], AGENT_PORT)))?,
            environment: kernel_environment(std::env::vars_os()),
        })
    }
}

fn address(name: &str, default: SocketAddr) -> anyhow::Result<SocketAddr> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("failed to read address `{text}` of {name}")),
        Err(_) => Ok(default),
    }
}

fn kernel_environment(variables: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<OsString, OsString> {
    let mut environment: BTreeMap<_, _> =
        variables.filter(|(name, _)| !name.as_encoded_bytes().starts_with(OWN.as_bytes())).collect();
    environment.entry("HOME".into()).or_insert_with(|| "/root".into());
    // R, Java and Bash read and write text in the character set of the locale.
    if !["LC_ALL", "LC_CTYPE", "LANG"].iter().any(|name| environment.contains_key(OsStr::new(name))) {
        environment.insert("LANG".into(), "C.UTF-8".into());
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_do_not_see_our_own_variables() {
        let given = [("SANDCOVE_X", "1"), ("PATH", "/bin")].map(|(k, v)| (k.into(), v.into()));
        let environment = kernel_environment(given.into_iter());
        let names: Vec<_> = environment.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["HOME", "LANG", "PATH"]);
        let given = [("LC_CTYPE".into(), "C".into())];
        assert!(!kernel_environment(given.into_iter()).contains_key(OsStr::new("LANG")));
    }
}
