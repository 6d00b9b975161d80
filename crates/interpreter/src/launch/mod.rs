//! How a kernel of each language is started: forked from the sandbox's warm Python process (`zygote`), as a program of its
//! own (`program`), or as an installed Jupyter kernel ([`crate::jupyter`]).

mod program;
mod zygote;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{Config, DEFAULT_DIRECTORY};
use crate::jupyter::{self, Kernelspec};
use crate::kernel::request::{Request, environment_block};
use crate::kernel::{Kernel, StartError};
use crate::language::Language;
use program::{BASH, CPP, NODE, Program, RUBY};
use zygote::Zygote;

/// Starts kernels.
#[derive(Debug)]
pub struct Launcher {
    zygote: Zygote,
    /// Whether the next Python kernel, which is the first, has time to warm up.
    warm_up: AtomicBool,
    /// Variables of every kernel.
    environment: BTreeMap<OsString, OsString>,
    /// Whether the template was still without its further languages when this sandbox was created.
    languages_building: bool,
}

impl Launcher {
    /// Makes a launcher with these settings. Starts nothing yet.
    pub fn new(config: &Config) -> Self {
        Self {
            zygote: Zygote::new(config),
            warm_up: AtomicBool::new(config.warm_up),
            environment: config.environment.clone(),
            languages_building: config.languages_building,
        }
    }

    /// Whether there is a host for `language` and what it runs on is installed.
    pub fn offers(&self, language: &Language) -> bool {
        self.host(language).is_some()
    }

    /// Starts a kernel of `language` in `directory`, or in [`DEFAULT_DIRECTORY`] if there is no such one (contract: interpreter, section 2).
    pub async fn start(&self, language: &Language, directory: &Path) -> Result<Kernel, StartError> {
        let directory = &existing(directory);
        let kernel = match self.host(language) {
            Some(Host::Python) => {
                let kernel = self.zygote.start_kernel().await?;
                // A zygote that the host forked into the sandbox has the variables of the template's warm process.
                let variables =
                    self.environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
                kernel.send(Request::Environment(environment_block(variables))).await;
                if self.warm_up.swap(false, Ordering::Relaxed) {
                    kernel.send(Request::WarmUp).await;
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
        kernel.send(Request::Directory(directory.to_owned())).await;
        Ok(kernel)
    }

    /// Starts an installed Jupyter kernel. They are looked up for each start, because code can install them.
    async fn start_installed(&self, language: &Language, directory: &Path) -> Result<Kernel, StartError> {
        let installed = Kernelspec::installed(&self.environment);
        if let Some(spec) = Kernelspec::of(language, &installed) {
            return jupyter::start(spec, &self.environment, directory).await;
        }
        let hosted = HOSTED.into_iter().filter_map(|name| Language::from_request(Some(name)));
        let hosted = hosted.filter(|language| self.offers(language)).map(|language| language.to_string());
        let known = hosted.chain(installed.iter().map(|spec| spec.known_as(&installed))).collect();
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

/// Languages with a host of our own.
const HOSTED: [&str; 6] = ["python", "javascript", "typescript", "bash", "cpp", "ruby"];

/// How a host of our own is started.
#[derive(Debug, Clone, Copy)]
enum Host {
    /// By a fork of the zygote.
    Python,
    /// As a program.
    Program(Program),
    /// As a program, unless a Jupyter kernel for the language is installed.
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

/// The directory that a kernel starts in for a client that asks for `directory`.
fn existing(directory: &Path) -> PathBuf {
    let home = Path::new(DEFAULT_DIRECTORY);
    let directory = home.join(directory);
    if directory.is_dir() { directory } else { home.to_owned() }
}
