//! `sandcove-agent --step`: the work of template builds that an image may have no tools for (wire: step). A step runs as root
//! inside the sandbox, on archives and trees that others made: it never leaves the archive's own tree while it unpacks, follows
//! links only where a path of the build says so, and needs memory for one block of a file at a time.
//!
//! `copy` unpacks with `archive` and `tree`, and moves with `merge`; `resolve` finds where a path of a build leads. `account`,
//! `work_directory`, `configure` and `mount` are the other steps.

mod account;
mod archive;
mod configure;
mod copy;
mod decompress;
mod error;
mod merge;
mod mount;
mod owner;
mod resolve;
mod tree;
mod work_directory;

#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;

use std::path::Path;

use rustix::fs::Mode;
use sandcove_wire::step::{GuestStep, StepOutcome};

pub use error::StepError;

/// Runs the step that `message` describes as JSON.
///
/// # Errors
/// Says in one line what failed, with which value.
pub fn run(message: &str) -> Result<StepOutcome, StepError> {
    let step: GuestStep =
        serde_json::from_str(message).map_err(|e| StepError::invalid(format!("malformed step: {e}")))?;
    // Where a mode is not given, it is the usual one.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let root = Path::new("/");
    match step {
        GuestStep::Copy { archive, source, destination, workdir, user, owner, mode } => {
            let copy = copy::Copy {
                source: &source,
                destination: &destination,
                workdir: workdir.as_deref(),
                user: &user,
                owner: owner.as_deref(),
                mode: mode.as_deref(),
            };
            copy::run(Path::new(&archive), &copy, &owner::load(root)?)?;
            Ok(StepOutcome::default())
        }
        GuestStep::WorkDirectory { path, current, user } => {
            let path = work_directory::create(&path, current.as_deref(), &user, &owner::load(root)?)?;
            Ok(StepOutcome { path: Some(path), ..StepOutcome::default() })
        }
        GuestStep::Account { name, sudo } => {
            account::ensure(root, &name, sudo)?;
            Ok(StepOutcome::default())
        }
        GuestStep::Mount { archive, source, target, owner, mode } => {
            let mount = mount::Mount {
                archive: Path::new(&archive),
                source: source.as_deref(),
                target: &target,
                owner: owner.as_deref(),
                mode: mode.as_deref(),
            };
            let mounted = mount::mount(&mount, &owner::load(root)?)?;
            Ok(StepOutcome { path: Some(mounted.path), aside: mounted.aside })
        }
        GuestStep::Unmount { path, aside } => {
            mount::unmount(&mount::Mounted { path, aside })?;
            Ok(StepOutcome::default())
        }
        GuestStep::Configure { template_id, build_id } => {
            configure::run(root, &template_id, &build_id)?;
            Ok(StepOutcome::default())
        }
    }
}
