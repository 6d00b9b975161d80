//! Making a sandbox ready for code.

use super::error::{CodeError, Result};
use super::run::{self, Execution, Limits};
use super::settings::CodeSettings;
use crate::sandboxes::{Sandboxes, Taken};

/// A sandbox that is ready for code.
pub(super) struct Prepared {
    pub(super) taken: Taken,
    /// Memory that its interpreter had before the code, in KiB.
    before: Option<f64>,
}

impl Prepared {
    /// Runs the code of a case and measures its memory. `mark` is a word that the answer cannot know.
    pub(super) async fn run(&self, language: &str, code: &str, limits: Limits, mark: &str) -> Execution {
        let sandbox = &self.taken.sandbox;
        let gauge = self.before.and_then(|_| run::with_memory_gauge(language, code, mark));
        let mut execution = run::code(sandbox, language, gauge.as_deref().unwrap_or(code), limits).await;
        match execution.take_gauged(mark) {
            Some(most) => execution.memory = self.above(most),
            None => self.measure(&mut execution, language, limits).await,
        }
        execution
    }

    /// Measures the memory of an execution that has just ended, if the sandbox can still be asked.
    pub(super) async fn measure(&self, execution: &mut Execution, language: &str, limits: Limits) {
        if let Some(gauge) = run::memory_gauge(language).filter(|_| execution.leaves_sandbox_usable()) {
            let most = run::gauged(&run::code(&self.taken.sandbox, language, gauge, limits).await);
            execution.memory = most.and_then(|most| self.above(most));
        }
    }

    fn above(&self, most: f64) -> Option<f64> {
        Some(((most - self.before?) / 1024.0).max(0.0))
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
    // A JavaScript cell awaits its last value, so there the gauge is a cell of its own, with the limit before it.
    let mut gauge = run::memory_gauge(language).map(str::to_owned);
    if let Some(gauge) = gauge.take_if(|_| language == "python") {
        setup.push('\n');
        setup.push_str(&gauge);
    }
    if let Some(gauge) = &mut gauge {
        gauge.insert_str(0, &node_limit(settings.limits().memory));
    }
    let mut before = None;
    if !setup.is_empty() {
        let done = run::code(&taken.sandbox, language, &setup, settings.limits()).await;
        if let Some(failure) = done.failure() {
            return Err(CodeError::Setup(failure));
        }
        before = run::gauged(&done);
    }
    match gauge {
        Some(gauge) => Ok(run::gauged(&run::code(&taken.sandbox, language, &gauge, settings.limits()).await)),
        None => Ok(before),
    }
}

/// Returns JavaScript that limits the memory of its interpreter to so many MiB on top of what it has. Node reserves far more addresses than it
/// uses, so the limit is on what it can write to. A sandbox without `prlimit` has only its own limit.
fn node_limit(megabytes: u64) -> String {
    format!(
        "try {{ require('child_process').execFileSync('prlimit', ['--pid', String(process.pid), '--data=' + \
         (Number(require('fs').readFileSync('/proc/self/status', 'utf8').match(/VmData:\\s*(\\d+)/)[1]) * 1024 + {megabytes} * 1048576)]) }} \
         catch {{}}\n"
    )
}
