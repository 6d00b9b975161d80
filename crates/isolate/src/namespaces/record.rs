//! The record of a sandbox, `run/<id>/jail.json`: a restarted server adopts the sandbox by it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::secrets::Vault;
use crate::{Error, NetworkPolicy, Record, Result};

const NAME: &str = "jail.json";

pub(super) fn read(run_dir: &Path) -> Result<Record> {
    let path = run_dir.join(NAME);
    let text =
        std::fs::read(&path).map_err(|source| Error::Path { action: "read", path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|error| Error::Path { action: "parse", path, source: error.into() })
}

/// Reads all records below `run`; unreadable ones are left out.
pub(super) fn all(run: &Path) -> Vec<Record> {
    let entries = std::fs::read_dir(run).into_iter().flatten();
    entries.filter_map(|entry| read(&entry.ok()?.path()).ok()).collect()
}

/// Seals values of secrets and passwords of proxies in `records` anew that were sealed with a former key: sandboxes outlive the keys. A value that cannot be opened stays
/// as it is.
pub(super) fn renew_secrets(run: &Path, records: &mut [Record], vault: &Vault) -> Result<()> {
    for record in records {
        let mut is_changed = false;
        let NetworkPolicy { secrets, upstream, .. } = &mut record.network;
        let password = upstream.as_mut().and_then(|proxy| proxy.password.as_mut());
        let secrets = secrets.iter_mut().map(|(name, secret)| (name.as_str(), secret));
        for (name, secret) in secrets.chain(password.map(|password| ("the password of its proxy", password)))
        {
            match vault.renew(&secret.context, &secret.sealed) {
                Ok(None) => {}
                Ok(Some(sealed)) => {
                    secret.sealed = sealed;
                    is_changed = true;
                }
                Err(error) => tracing::error!(
                    sandbox_id = %record.id,
                    secret = name,
                    error = &error as &dyn std::error::Error,
                    "the value of a secret in a sandbox's rules cannot be opened: set the rules again"
                ),
            }
        }
        if is_changed {
            write(&run.join(record.id.as_str()), record)?;
        }
    }
    Ok(())
}

/// Replaces the record atomically. The record is not synced: it describes processes, which do not survive a power failure.
pub(super) fn write(run_dir: &Path, record: &Record) -> Result<()> {
    let (path, fresh) = (run_dir.join(NAME), run_dir.join("jail.json.new"));
    let written: io::Result<()> = (|| {
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        std::fs::rename(&fresh, &path)
    })();
    written.map_err(|source| Error::Path { action: "write", path, source })
}
