//! Making a sandbox ready for code.

use super::error::{CodeError, Result};
use super::run;
use super::settings::CodeSettings;
use crate::sandboxes::{Sandboxes, Taken};

/// Creates a sandbox with the files, limits and setup that the suite asks for.
///
/// # Errors
/// When no sandbox can be created, or it does not accept them.
pub(super) async fn prepared(
    sandboxes: &Sandboxes,
    settings: &CodeSettings,
    language: &str,
) -> Result<Taken> {
    let taken = sandboxes.take(&settings.environment()).await?;
    match prepare(&taken, settings, language).await {
        Ok(()) => Ok(taken),
        Err(error) => {
            taken.end().await;
            Err(error)
        }
    }
}

async fn prepare(taken: &Taken, settings: &CodeSettings, language: &str) -> Result<()> {
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
    if setup.is_empty() {
        return Ok(());
    }
    let done = run::code(&taken.sandbox, language, &setup, settings.limits()).await;
    match done.failure() {
        None => Ok(()),
        Some(failure) => Err(CodeError::Setup(failure)),
    }
}
