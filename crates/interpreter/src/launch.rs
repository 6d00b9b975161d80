//! Which languages there are, and how a kernel of each is started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;
use crate::jupyter::{self, Kernelspec};
use crate::kernel::frame::{Request, environment_block};
use crate::kernel::{Kernel, StartError};
use crate::language::Language;
use crate::program::{BASH, NODE, Program};
use crate::python::Zygote;

/// Starts kernels.
#[derive(Debug)]
pub struct Launcher {
    python: Zygote,
    /// Whether a Python kernel that starts has time to rehearse: the first.
    rehearse: AtomicBool,
    /// Variables of every kernel.
    environment: BTreeMap<OsString, OsString>,
}

impl Launcher {
    /// A launcher with these settings. Starts nothing yet.
    pub fn new(config: &Config) -> Self {
        Self {
            python: Zygote::new(config),
            rehearse: AtomicBool::new(config.rehearse),
            environment: config.environment.clone(),
        }
    }

    /// Whether we have a host for `language` and what it runs on is installed.
    pub fn offers(&self, language: &Language) -> bool {
        self.host(language).is_some()
    }

    /// Starts a kernel of `language` in `directory`, or where it happens to start if there is no such directory.
    pub async fn start(&self, language: &Language, directory: &Path) -> Result<Kernel, StartError> {
        let kernel = match self.host(language) {
            Some(Host::Python) => {
                let kernel = self.python.start_kernel().await?;
                // The warm process it was forked from may have been started for somebody else.
                let variables =
                    self.environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
                kernel.request(&Request::Environment(&environment_block(variables)));
                if self.rehearse.swap(false, Ordering::Relaxed) {
                    kernel.request(&Request::Rehearse);
                }
                kernel
            }
            Some(Host::Program(program)) => program.start(&self.environment, directory).await?,
            None => self.start_installed(language, directory).await?,
        };
        kernel.request(&Request::Directory(directory));
        Ok(kernel)
    }

    /// Starts a kernel that is not ours. They are looked for each time: code can install them.
    async fn start_installed(&self, language: &Language, directory: &Path) -> Result<Kernel, StartError> {
        let installed = Kernelspec::installed(&self.environment);
        if let Some(spec) = Kernelspec::of(language, &installed) {
            return jupyter::start(spec, &self.environment, directory).await;
        }
        let ours = HOSTED.into_iter().map(|name| Language::from_request(Some(name)));
        let ours =
            ours.flatten().filter(|language| self.offers(language)).map(|language| language.to_string());
        let known = ours.chain(installed.iter().map(|spec| spec.known_as(&installed))).collect();
        Err(StartError::NoSuchKernel { language: language.to_string(), known })
    }

    fn host(&self, language: &Language) -> Option<Host> {
        let program = match language.as_str() {
            "python" | "python3" => return Some(Host::Python),
            "javascript" | "typescript" => NODE,
            "bash" => BASH,
            _ => return None,
        };
        program.is_installed(&self.environment).then_some(Host::Program(program))
    }
}

/// The languages we have hosts for.
const HOSTED: [&str; 4] = ["python", "javascript", "typescript", "bash"];

/// How a host of ours is started.
#[derive(Debug, Clone, Copy)]
enum Host {
    Python,
    Program(Program),
}
