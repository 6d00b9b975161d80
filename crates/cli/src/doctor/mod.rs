//! `sandcove doctor`: whether this host can run sandboxes, and what to do where it cannot.

mod account;
mod checks;
mod clients;
mod namespaces;
mod storage;

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::output::{self, out};

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The requirement is met.
    Ok,
    /// Sandboxes run without it, with a limitation.
    Warn,
    /// Sandboxes cannot run.
    Missing,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    name: &'static str,
    status: Status,
    /// State of the requirement on this host.
    found: String,
    /// Next step for the operator; empty when the requirement is met.
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'static str,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), hint: "" }
    }

    /// A check that is ok when `holds`, and otherwise has `status` and `hint`.
    fn when(
        holds: bool,
        name: &'static str,
        found: impl Into<String>,
        status: Status,
        hint: &'static str,
    ) -> Self {
        if holds { Self::ok(name, found) } else { Self { name, status, found: found.into(), hint } }
    }
}

/// Prints all checks, and fails when something indispensable is missing. `account` is the one that the server process is to run as.
pub async fn doctor(data_dir: &Path, account: u32, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut checks = checks::all(data_dir);
    checks.extend(account::all(data_dir, account));
    checks.extend(clients::all(data_dir).await);
    if as_json {
        out!("{}", serde_json::to_string_pretty(&checks)?);
    } else {
        let _ = output::write(table(&checks).as_bytes());
    }
    let usable = checks.iter().all(|check| check.status != Status::Missing);
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Missing => "missing",
        };
        text.push_str(&format!("{status:<8} {:<18} {}\n", check.name, check.found));
        if !check.hint.is_empty() {
            text.push_str(&format!("{:27} hint: {}\n", "", check.hint));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_that_fails_says_what_to_do() {
        let nowhere = Path::new("/does/not/exist");
        for check in checks::all(nowhere).into_iter().chain(account::all(nowhere, 60_888)) {
            assert_eq!(check.status == Status::Ok, check.hint.is_empty(), "{check:?}");
            assert!(!check.found.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn status_is_a_word_not_a_colour() {
        let checks = [Check::when(false, "kvm", "no /dev/kvm", Status::Warn, "enable it")];
        assert_eq!(
            table(&checks),
            format!("warn     kvm                no /dev/kvm\n{:27} hint: enable it\n", "")
        );
    }
}
