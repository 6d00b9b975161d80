//! The CRIU of a host: a directory with the program, its loader and its libraries, so that it runs in any root that has the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Result};

/// A directory with `criu`, its loader `ld.so`, `tar` and `gzip` in `bin`, libraries in `lib`, and `preload.so` (`packaging/criu/preload.c`).
#[derive(Debug, Clone)]
pub(crate) struct Program {
    directory: PathBuf,
}

impl Program {
    /// The program in `directory`, which need not exist in the root of the caller.
    pub(crate) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Directory of the program.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The command that runs CRIU: a path and arguments, to which those of CRIU are added.
    pub(crate) fn command(&self) -> Vec<String> {
        let path = |name: &str| self.directory.join(name).to_string_lossy().into_owned();
        let [loader, libraries, preloaded, criu] = ["bin/ld.so", "lib", "preload.so", "bin/criu"].map(path);
        vec![loader, "--library-path".into(), libraries, "--preload".into(), preloaded, criu]
    }

    /// Runs CRIU to learn its version.
    pub(crate) fn version(&self) -> Result<String> {
        let failed = |reason| Error::Tool { tool: "criu", reason };
        let command = self.command();
        let asked = match command.split_first() {
            Some((program, arguments)) => Command::new(program).args(arguments).arg("--version").output(),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let asked = asked.map_err(|error| failed(format!("{}: {error}", self.directory.display())))?;
        let text = String::from_utf8_lossy(&asked.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("Version:"));
        Ok(version.ok_or_else(|| failed("it does not report its version".into()))?.trim().to_owned())
    }
}
