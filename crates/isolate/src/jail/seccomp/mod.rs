//! The system calls of a jail. [`sandbox`], [`warm`], [`server`], [`egress`] and [`unpacker`] are the profiles: tables of calls and of rules on their arguments,
//! each with its reason. [`profile`] compiles them.
//!
//! A process has three filters. The first is an allow-list: other calls return "not implemented", so that programs fall
//! back to older calls. The second answers calls that programs expect to succeed and that would affect the host. The third
//! refuses, with "not permitted", calls that affect the host or other namespaces.
//!
//! `recorded.txt` lists which programs make which calls. It was recorded in sandboxes by `tests/record_calls.py`, and a
//! test compares it with the profile: a call that nothing makes is not allowed without a reason of its own.

mod egress;
mod profile;
mod sandbox;
mod server;
#[cfg(test)]
mod tests;
mod unpacker;
mod warm;

use std::sync::OnceLock;

use seccompiler::{BackendError, BpfProgram};

use super::handover::{Failure, JailKind};
use crate::sys::{self, RefusedCalls};
use egress::EGRESS;
use profile::{Profile, Rule};
use sandbox::SANDBOX;
use server::SERVER;
use unpacker::UNPACKER;
use warm::ENTERING;

/// The filters of both kinds of jails. The spawner compiles them once; the processes it forks find them in their memory.
struct Filters {
    refused_calls: RefusedCalls,
    sandbox: Loaded,
    warm: Loaded,
}

/// The filters of one kind of jail, in the order in which they are loaded.
struct Loaded {
    allows: BpfProgram,
    answers: BpfProgram,
    refuses: BpfProgram,
}

static FILTERS: OnceLock<Filters> = OnceLock::new();

/// Compiles the filters that this process and its forks load.
pub(crate) fn prepare(refused_calls: RefusedCalls) -> Result<(), Failure> {
    let compile = || -> Result<Filters, BackendError> {
        let loaded = |more: &[Rule]| {
            Ok::<_, BackendError>(Loaded {
                allows: SANDBOX.allows(more)?,
                answers: SANDBOX.answers()?,
                refuses: SANDBOX.refuses(more)?,
            })
        };
        Ok(Filters { refused_calls, sandbox: loaded(&[])?, warm: loaded(ENTERING)? })
    };
    let filters = compile().map_err(Failure::at("compile seccomp"))?;
    // Prepared already: the filters are the same.
    let _ = FILTERS.set(filters);
    Ok(())
}

/// Loads the filters for this process and its descendants. Needs `CAP_SYS_ADMIN`, see [`sys::install_filter`].
pub(super) fn load(kind: JailKind) -> Result<(), Failure> {
    let filters = FILTERS
        .get()
        .ok_or_else(|| Failure { step: "load seccomp".into(), reason: "no filters are prepared".into() })?;
    let loaded = match kind {
        JailKind::Sandbox => &filters.sandbox,
        JailKind::Warm { .. } => &filters.warm,
    };
    let install =
        |program: &BpfProgram, log| sys::install_filter(program, log).map_err(Failure::at("load seccomp"));
    // Of several errors the kernel returns that of the newest filter.
    install(&loaded.allows, filters.refused_calls)?;
    install(&loaded.answers, RefusedCalls::Silent)?;
    install(&loaded.refuses, filters.refused_calls)
}

/// Loads the filter of the server process for the calling thread and its descendants. It must be barred from new privileges.
pub(crate) fn load_for_server(refused_calls: RefusedCalls) -> std::io::Result<()> {
    load_one(&SERVER, refused_calls)
}

/// Loads the filter of the process of the egress proxies, likewise.
pub(crate) fn load_for_egress(refused_calls: RefusedCalls) -> std::io::Result<()> {
    load_one(&EGRESS, refused_calls)
}

/// Loads the filter of a process that unpacks layers of images, likewise.
pub(crate) fn load_for_unpacker(refused_calls: RefusedCalls) -> std::io::Result<()> {
    load_one(&UNPACKER, refused_calls)
}

fn load_one(profile: &Profile, refused_calls: RefusedCalls) -> std::io::Result<()> {
    let program = profile.allows(&[]).map_err(std::io::Error::other)?;
    sys::install_filter(&program, refused_calls)
}

/// The filter that a fork of a warm process loads in a sandbox on top of its own, byte for byte as the kernel takes it.
pub(crate) fn refusals() -> Result<Vec<u8>, BackendError> {
    let program = SANDBOX.refuses(&[])?;
    Ok(program
        .iter()
        .flat_map(|one| [&one.code.to_ne_bytes()[..], &[one.jt, one.jf], &one.k.to_ne_bytes()].concat())
        .collect())
}
