//! Kernels that are a program of their own, started anew for each context: JavaScript, TypeScript, Bash, Ruby and C++.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::kernel::{Escalation, Kernel, Link, StartError, spawn};

/// A program and the source of the kernel host it runs.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Another program that must be installed too.
    needs: Option<&'static str>,
    /// Interrupts before the kernel is killed.
    interrupts: u32,
}

/// The JavaScript and TypeScript host. Runs cells as scripts of one global scope, types stripped.
pub const NODE: Program = Program { name: "node", arguments: &["-e", NODE_HOST], needs: None, interrupts: 1 };
/// The host in a function, because `node -e` shares its top level with the cells.
const NODE_HOST: &str = concat!("(() => {", include_str!("../../hosts/kernel.js"), "})()");
/// The Bash host. Evaluates cells in one shell.
pub const BASH: Program = Program {
    name: "bash",
    arguments: &["--norc", "--noprofile", "-c", BASH_START, include_str!("../../hosts/kernel.bash")],
    needs: None,
    interrupts: 2,
};
/// Makes the shell an interactive one, which runs the host where it would prompt. It says on standard error that it has no terminal; if
/// there is one, as in tests, it must not be the shell's.
const BASH_START: &str = "exec {__kernel_link}<&0 </dev/null 2>/dev/null
export __kernel_link PROMPT_COMMAND=$0
: </dev/tty && exec setsid bash --norc --noprofile --noediting -i
exec bash --norc --noprofile --noediting -i";
/// The Ruby host. Evaluates cells at one top level.
pub const RUBY: Program = Program {
    name: "ruby",
    arguments: &["-e", include_str!("../../hosts/kernel.rb")],
    needs: None,
    interrupts: 2,
};
/// The C++ host. Compiles cells and runs them in one process.
pub const CPP: Program = Program {
    name: "python3",
    arguments: &["-I", "-c", CPP_HOST, include_str!("../../hosts/cpp/prelude.hpp")],
    needs: Some("g++"),
    interrupts: 2,
};

/// The C++ host in one text; its parts share their names.
const CPP_HOST: &str = concat!(
    include_str!("../../hosts/cpp/source.py"),
    include_str!("../../hosts/cpp/session.py"),
    include_str!("../../hosts/cpp/kernel.py"),
);

impl Program {
    /// Whether the program, and what it needs, is on the search path of `environment`.
    pub fn is_installed(&self, environment: &BTreeMap<OsString, OsString>) -> bool {
        let Some(path) = environment.get(std::ffi::OsStr::new("PATH")) else { return false };
        let is_there = |name: &str| {
            path.as_bytes()
                .split(|byte| *byte == b':')
                .map(|directory| Path::new(std::ffi::OsStr::from_bytes(directory)).join(name))
                .any(|candidate| candidate.is_file())
        };
        is_there(self.name) && self.needs.is_none_or(is_there)
    }

    /// Starts a kernel with this environment, in `directory` if that exists.
    pub async fn start(
        &self,
        environment: &BTreeMap<OsString, OsString>,
        directory: &Path,
    ) -> Result<Kernel, StartError> {
        let (link, ends) = Link::pair().map_err(StartError::Descriptors)?;
        let mut command = Command::new(self.name);
        command.args(self.arguments).env_clear().envs(environment).stdin(Stdio::from(ends.socket));
        let spawned = spawn(command, self.name, directory, ends.outputs)?;
        Kernel::connect(link, Escalation::KillAfter(self.interrupts), spawned.ending).await
    }
}
