//! Checks of the account that the server process runs as, and of its directory.

use std::io::ErrorKind;
use std::path::Path;

use sandcove_isolate::{Objection, cannot_become};

use super::{Check, Status};
use crate::data_dir::Lock;
use crate::server_dir::{self, Inspected};

/// Name of the check of the account.
const ACCOUNT: &str = "server account";
/// Name of the check of the directory.
const DIRECTORY: &str = "server directory";
/// Lists of the accounts of this host, and what they list.
const LISTS: [(&str, &str); 2] = [("/etc/passwd", "user"), ("/etc/group", "group")];

/// Runs both checks. `number` is the account in the settings.
pub(super) fn all(data_dir: &Path, number: u32) -> Vec<Check> {
    if !rustix::process::geteuid().is_root() {
        let hint = "run `sandcove doctor` as root";
        return [ACCOUNT, DIRECTORY]
            .map(|name| Check::when(false, name, "not known: not running as root", Status::Warn, hint))
            .into();
    }
    let lists = LISTS.map(|(file, kind)| (std::fs::read_to_string(file).unwrap_or_default(), kind));
    vec![account(number, cannot_become(number), &lists), directory(data_dir, number)]
}

fn account(number: u32, objection: Option<Objection>, lists: &[(String, &str)]) -> Check {
    let warn = |found: String, hint| Check::when(false, ACCOUNT, found, Status::Warn, hint);
    if number == 0 {
        return warn(
            "none: the server runs in one process, as root".to_owned(),
            "remove `server-account = 0`, so that what parses requests has no privileges",
        );
    }
    if let Some(objection) = objection {
        let hint = match objection {
            Objection::OfSandboxes => "choose a lower number for --server-account, as 60888",
            Objection::Incapable(_) | Objection::Unknown(_) => {
                "give this right to the service or container that the server runs in"
            }
            Objection::Unmapped { .. } => {
                "choose a number for --server-account that exists in this container, or give the container more ids (/etc/subuid, \
                 /etc/subgid)"
            }
        };
        return warn(
            format!("the server would run in one process, as root, and not as {number}: {objection}"),
            hint,
        );
    }
    let others: Vec<String> = lists
        .iter()
        .filter_map(|(list, kind)| Some(format!("the {kind} `{}`", named(list, number)?)))
        .collect();
    if !others.is_empty() {
        return warn(
            format!("{number} is {}, who could read the server's files", others.join(" and ")),
            "choose a number for --server-account that no user and no group has",
        );
    }
    Check::ok(ACCOUNT, format!("{number}, which no user and no group has"))
}

/// The name of the account of this number in a list like `/etc/passwd`.
fn named(list: &str, number: u32) -> Option<&str> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then_some(name)
    })
}

fn directory(data_dir: &Path, number: u32) -> Check {
    let path = server_dir::path(data_dir);
    let place = path.display();
    match server_dir::inspect(data_dir) {
        Ok(None) => Check::ok(DIRECTORY, format!("no {place} yet: the first start creates it")),
        Ok(Some(inspected)) => inspect(&place.to_string(), &inspected, number, Lock::is_held(data_dir)),
        Err(error) => {
            let (status, hint) = match error.kind() {
                ErrorKind::PermissionDenied => {
                    (Status::Warn, "run `sandcove doctor` as root, and outside of user namespaces")
                }
                _ => {
                    (Status::Missing, "move away what is there, if it is no directory: the start creates one")
                }
            };
            Check::when(false, DIRECTORY, format!("{place} cannot be read: {error}"), status, hint)
        }
    }
}

fn inspect(place: &str, inspected: &Inspected, number: u32, runs: bool) -> Check {
    let Inspected { owner, of_others, strangers } = inspected;
    let warn = |found: String, hint| Check::when(false, DIRECTORY, found, Status::Warn, hint);
    if let Some(first) = strangers.first() {
        return warn(
            format!("the server did not make `{first}` in {place} (of {} such entries)", strangers.len()),
            "find out who made it, and remove it: links there are not followed, but no server makes any",
        );
    }
    // The start gives everything to the account.
    if let Some(first) = of_others.first().filter(|_| runs) {
        return warn(
            format!(
                "`{first}` in {place} is of another account than {owner} (of {} such entries)",
                of_others.len()
            ),
            "restart the server, which gives its files to its account",
        );
    }
    let next = if *owner == number { "" } else { "; the next start gives it to the account of the settings" };
    Check::ok(DIRECTORY, format!("{place}, of {owner}{next}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u32, objection: Option<Objection>) -> Check {
        let lists = [
            ("root:x:0:0::/root:/bin/sh\nann:x:1000:1001::/:/bin/sh\n".to_owned(), "user"),
            ("root:x:0:\nstaff:x:1000:ann\nlonely:x:1001:\n".to_owned(), "group"),
        ];
        account(number, objection, &lists)
    }

    #[test]
    fn an_account_of_its_own_is_fine() {
        assert_eq!(of(60_888, None), Check::ok(ACCOUNT, "60888, which no user and no group has"));
    }

    #[test]
    fn what_is_wrong_with_an_account_is_said() {
        let unmapped = Objection::Unmapped { account: 60_888, map: "/proc/self/uid_map" };
        for (number, objection, expected) in [
            (0, None, "one process, as root"),
            (1000, None, "1000 is the user `ann` and the group `staff`"),
            (1001, None, "1001 is the group `lonely`"),
            (60_888, Some(Objection::Incapable("CAP_SETUID")), "not as 60888: it takes CAP_SETUID"),
            (60_888, Some(unmapped), "there is no id 60888 in this user namespace"),
        ] {
            let check = of(number, objection);
            assert!(check.found.contains(expected) && !check.hint.is_empty(), "{check:?}");
            assert_eq!(check.status, Status::Warn);
        }
    }

    #[test]
    fn files_of_others_matter_while_a_server_runs() {
        let inspected =
            Inspected { owner: 60_888, of_others: vec!["sandcove.db-wal".into()], strangers: Vec::new() };
        assert!(
            inspect("D", &inspected, 60_888, true).found.starts_with("`sandcove.db-wal` in D is of another")
        );
        assert_eq!(inspect("D", &inspected, 60_888, false).status, Status::Ok);
        let elsewhere = inspect("D", &Inspected { of_others: Vec::new(), ..inspected }, 60_999, false);
        assert!(elsewhere.found.ends_with("the next start gives it to the account of the settings"));
    }
}
