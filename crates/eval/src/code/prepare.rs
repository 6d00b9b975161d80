//! Making a sandbox ready for code.

use super::error::{CodeError, Result};
use super::run::{self, Limits};
use super::settings::CodeSettings;
use crate::sandboxes::{Sandboxes, Taken};

/// A sandbox that is ready for code.
pub(super) struct Prepared {
    pub(super) taken: Taken,
    /// Memory that its interpreter had before the code, in KiB.
    before: Option<f64>,
}

impl Prepared {
    /// Returns the MiB that the interpreter had at most since the gauge was read before, on top of what it had before the code.
    pub(super) async fn memory(&self, language: &str, limits: Limits) -> Option<f64> {
        let (before, gauge) = (self.before?, run::memory_gauge(language)?);
        let most = run::gauged(&run::code(&self.taken.sandbox, language, gauge, limits).await)?;
        Some(((most - before) / 1024.0).max(0.0))
    }
}

/// Creates a sandbox with the files, limits and setup that the suite asks for.
///
/// # Errors
/// When no sandbox can be created, or it does not accept them.
pub(super) async fn prepared(
    sandboxes: &Sandboxes,
    settings: &CodeSettings,
    language: &str,
) -> Result<Prepared> {
    let taken = sandboxes.take(&settings.environment()).await?;
    match prepare(&taken, settings, language).await {
        Ok(before) => Ok(Prepared { taken, before }),
        Err(error) => {
            taken.end().await;
            Err(error)
        }
    }
}

/// Returns the memory of the interpreter, in KiB.
async fn prepare(taken: &Taken, settings: &CodeSettings, language: &str) -> Result<Option<f64>> {
    for (path, contents) in &settings.files {
        let written = taken.sandbox.write_file(path, contents.clone().into()).await;
        written.map_err(|error| CodeError::Write { path: path.clone(), error })?;
    }
    let mut setup = String::new();
    if language == "python" {
        let megabytes = settings.limits().memory;
        setup = format!(
            "import resource as _r\n\
             _m = int(open('/proc/self/statm').read().split()[0]) * _r.getpagesize() + {megabytes} * 1048576\n\
             _r.setrlimit(_r.RLIMIT_AS, (_m, _m)); del _r, _m\n"
        );
    }
    setup.push_str(settings.setup.as_deref().unwrap_or_default());
    if let Some(gauge) = run::memory_gauge(language) {
        setup.push('\n');
        setup.push_str(gauge);
    }
    if setup.is_empty() {
        return Ok(None);
    }
    let done = run::code(&taken.sandbox, language, &setup, settings.limits()).await;
    match done.failure() {
        None => Ok(run::gauged(&done)),
        Some(failure) => Err(CodeError::Setup(failure)),
    }
}
