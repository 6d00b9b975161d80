//! Which languages there are, and how a kernel of each is started.

use std::path::Path;

use crate::config::Config;
use crate::kernel::frame::{Request, environment_block};
use crate::kernel::{Kernel, StartError};
use crate::language::Language;
use crate::python::Zygote;

/// Starts kernels.
#[derive(Debug)]
pub struct Launcher {
    python: Zygote,
    /// Variables of every kernel, as a frame payload.
    environment: Vec<u8>,
}

impl Launcher {
    /// A launcher with these settings. Starts nothing yet.
    pub fn new(config: &Config) -> Self {
        let environment =
            environment_block(config.environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())));
        Self { python: Zygote::new(config), environment }
    }

    /// Whether kernels of `language` can be started, as far as one can tell without trying.
    pub fn offers(&self, language: &Language) -> bool {
        Kind::of(language).is_some()
    }

    /// Starts a kernel of `language` in `directory`, or where it happens to start if there is no such directory.
    pub async fn start(&self, language: &Language, directory: &Path) -> Result<Kernel, StartError> {
        let kernel = match Kind::of(language) {
            Some(Kind::Python) => self.python.start_kernel().await?,
            None => return Err(StartError::NoSuchKernel(language.to_string())),
        };
        kernel.request(&Request::Environment(&self.environment));
        kernel.request(&Request::Directory(directory));
        Ok(kernel)
    }
}

/// The kernels we know how to start.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Python,
}

impl Kind {
    fn of(language: &Language) -> Option<Self> {
        match language.as_str() {
            "python" | "python3" => Some(Self::Python),
            _ => None,
        }
    }
}
