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
use crate::program::{BASH, CPP, NODE, Program, RUBY};
use crate::python::Zygote;

/// Starts kernels.
#[derive(Debug)]
pub struct Launcher {
    python: Zygote,
    /// Whether a Python kernel that starts has time to rehearse: the first.
    rehearse: AtomicBool,
    /// Variables of every kernel.
    environment: BTreeMap<OsString, OsString>,
    /// Whether the template was still without its further languages when this sandbox was made.
    languages_building: bool,
}

impl Launcher {
    /// A launcher with these settings. Starts nothing yet.
    pub fn new(config: &Config) -> Self {
        Self {
            python: Zygote::new(config),
            rehearse: AtomicBool::new(config.rehearse),
            environment: config.environment.clone(),
            languages_building: config.languages_building,
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
            Some(Host::Fallback(program)) => match self.start_installed(language, directory).await {
                Err(StartError::NoSuchKernel { .. } | StartError::BeingBuilt { .. }) => {
                    program.start(&self.environment, directory).await?
                }
                started => started?,
            },
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
        let (is_further, language) = (language.is_further(), language.to_string());
        if is_further && self.languages_building {
            return Err(StartError::BeingBuilt { language });
        }
        Err(StartError::NoSuchKernel { language, known, is_further })
    }

    fn host(&self, language: &Language) -> Option<Host> {
        let host = match language.as_str() {
            "python" | "python3" => return Some(Host::Python),
            "javascript" | "typescript" => Host::Program(NODE),
            "bash" => Host::Program(BASH),
            "ruby" => Host::Fallback(RUBY),
            "cpp" => Host::Fallback(CPP),
            _ => return None,
        };
        host.is_installed(&self.environment).then_some(host)
    }
}

/// The languages we have hosts for.
const HOSTED: [&str; 6] = ["python", "javascript", "typescript", "bash", "cpp", "ruby"];

/// How a host of ours is started.
#[derive(Debug, Clone, Copy)]
enum Host {
    Python,
    Program(Program),
    /// Unless somebody has installed a Jupyter kernel for the language.
    Fallback(Program),
}

impl Host {
    fn is_installed(self, environment: &BTreeMap<OsString, OsString>) -> bool {
        match self {
            Self::Python => true,
            Self::Program(program) | Self::Fallback(program) => program.is_installed(environment),
        }
    }
}
