//! Which languages there are, and how a kernel of each is started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::config::Config;
use crate::kernel::frame::{Request, environment_block};
use crate::kernel::{Kernel, StartError};
use crate::language::Language;
use crate::program::{BASH, NODE, Program};
use crate::python::Zygote;

/// Starts kernels.
#[derive(Debug)]
pub struct Launcher {
    python: Zygote,
    /// Variables of every kernel.
    environment: BTreeMap<OsString, OsString>,
}

impl Launcher {
    /// A launcher with these settings. Starts nothing yet.
    pub fn new(config: &Config) -> Self {
        Self { python: Zygote::new(config), environment: config.environment.clone() }
    }

    /// Whether kernels of `language` can be started, as far as one can tell without trying.
    pub fn offers(&self, language: &Language) -> bool {
        match Kind::of(language) {
            Some(Kind::Python) => true,
            Some(Kind::Program(program)) => program.is_installed(&self.environment),
            None => false,
        }
    }

    /// Starts a kernel of `language` in `directory`, or where it happens to start if there is no such directory.
    pub async fn start(&self, language: &Language, directory: &Path) -> Result<Kernel, StartError> {
        let kernel = match Kind::of(language) {
            Some(Kind::Python) => {
                let kernel = self.python.start_kernel().await?;
                // The warm process it was forked from may have been started for somebody else.
                let variables =
                    self.environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
                kernel.request(&Request::Environment(&environment_block(variables)));
                kernel
            }
            Some(Kind::Program(program)) => program.start(&self.environment, directory).await?,
            None => return Err(StartError::NoSuchKernel(language.to_string())),
        };
        kernel.request(&Request::Directory(directory));
        Ok(kernel)
    }
}

/// The kernels we know how to start.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Python,
    Program(Program),
}

impl Kind {
    fn of(language: &Language) -> Option<Self> {
        match language.as_str() {
            "python" | "python3" => Some(Self::Python),
            "javascript" | "typescript" => Some(Self::Program(NODE)),
            "bash" => Some(Self::Program(BASH)),
            _ => None,
        }
    }
}
