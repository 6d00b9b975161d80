//! Adopting a sandbox of an earlier server. A sandbox counts as dead only on proof: its PID 1 has ended, and nothing runs in
//! its control group. When this cannot be determined, adoption is an error.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandcove_wire::id::SandboxId;

use super::host::{Host, blocking};
use super::record;
use super::running::RunningSandbox;
use crate::{Error, Result};

/// Timeout for the last processes of a dead sandbox to end.
const END_TIMEOUT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(2);

/// Opens the sandbox `id`; `None` if it is dead.
pub(super) async fn adopt(host: &Arc<Host>, id: &SandboxId) -> Result<Option<RunningSandbox>> {
    let run_dir = host.run_dir(id);
    let record = match record::read(&run_dir) {
        Ok(record) => record,
        // The run directory is removed last.
        Err(_) if is_missing(&run_dir)? => return Ok(None),
        Err(error) => return unrecorded(host, id, &error).map(|()| None),
    };
    let slot = record.slot;
    if let Some(sandbox) = RunningSandbox::recorded(host.clone(), record)? {
        if host.slots.mark(slot) {
            // An earlier server may have deprioritized it.
            host.cgroups.set_low_priority(slot, false)?;
            host.burners.add(&host.cgroups, slot);
            return Ok(Some(sandbox));
        }
        return Err(unproven(id, format!("slot {slot} is recorded for another sandbox too")));
    }
    let (waiting, id) = (host.clone(), id.clone());
    blocking(move || wait_until_empty(&waiting, &id, slot)).await?;
    Ok(None)
}

/// Waits until the control group of a sandbox whose PID 1 has ended is empty: the kernel kills the other processes with
/// PID 1.
fn wait_until_empty(host: &Host, id: &SandboxId, slot: u32) -> Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let left = host.cgroups.pids(slot)?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(unproven(
                id,
                format!("its PID 1 has ended, but its control group s{slot} holds {left:?}"),
            ));
        }
        // Version 1: a frozen process does not die before it is thawed.
        let _ = host.cgroups.freeze(slot, false);
        std::thread::sleep(POLL);
    }
}

/// Checks that a sandbox whose record cannot be read, as after a power failure, is dead: no processes run in a control group
/// that no record names.
fn unrecorded(host: &Host, id: &SandboxId, error: &Error) -> Result<()> {
    let run = host.config.data_dir.join("run");
    let recorded: HashSet<u32> = record::all(&run).into_iter().map(|record| record.slot).collect();
    for slot in host.cgroups.slots().into_iter().filter(|slot| !recorded.contains(slot)) {
        if !host.cgroups.pids(slot)?.is_empty() {
            return Err(unproven(
                id,
                format!("{error}, and control group s{slot} holds processes that no record names"),
            ));
        }
    }
    Ok(())
}

fn is_missing(run_dir: &std::path::Path) -> Result<bool> {
    match std::fs::metadata(run_dir) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Error::Path { action: "inspect", path: run_dir.to_owned(), source }),
    }
}

fn unproven(id: &SandboxId, reason: String) -> Error {
    Error::Unproven { id: id.to_string(), reason }
}
