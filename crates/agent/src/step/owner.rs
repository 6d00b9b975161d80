//! Owners of files by name or number, and modes.

use std::path::Path;

use super::error::{Result, StepError};
use crate::account::{Account, Accounts};
use crate::filesystem::directories::Owner;

/// Reads the accounts of the system at `root`.
pub(super) fn load(root: &Path) -> Result<Accounts> {
    Accounts::load_from(&root.join("etc")).map_err(|e| StepError::invalid(e.to_string()))
}

/// The account of a user of the build.
pub(super) fn account(accounts: &Accounts, user: &str) -> Result<Account> {
    accounts.lookup(user).ok_or_else(|| StepError::invalid(format!("there is no user `{user}`")))
}

/// The owner that `text` names as `user` or `user:group`, by name or number. A single name is that of a group too, if there is
/// one. Without a text, and for a part that is empty, it is `current` (contract: templates, section 9.3).
pub(super) fn parse(text: Option<&str>, current: &Account, accounts: &Accounts) -> Result<Owner> {
    let text = text.unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(Owner::from(current));
    }
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let account = if user.is_empty() { Some(current.clone()) } else { accounts.lookup(user) };
    let uid = match (&account, number(user)) {
        (Some(account), _) => account.uid,
        (None, Some(uid)) => uid,
        (None, None) => {
            return Err(StepError::invalid(format!(
                "there is no user `{user}` for the owner `{text}`: create it in an earlier step, or use its number"
            )));
        }
    };
    let of_user = account.map(|account| account.gid);
    let gid = match group {
        Some("") => of_user.unwrap_or(uid),
        Some(group) => accounts.group_id(group).or_else(|| number(group)).ok_or_else(|| {
            StepError::invalid(format!(
                "there is no group `{group}` for the owner `{text}`: create it in an earlier step, or use its number"
            ))
        })?,
        None => accounts.group_id(user).or_else(|| number(user)).or(of_user).unwrap_or(uid),
    };
    Ok(Owner { uid, gid })
}

/// The id that a text of digits is.
pub(super) fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // The highest number means "no change" to the kernel.
    text.parse().ok().filter(|id| digits && *id != u32::MAX)
}

/// The mode in an octal text; none in an empty one.
pub(super) fn mode(text: Option<&str>) -> Result<Option<u32>> {
    let text = text.unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    let octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o7777);
    mode.map(Some).ok_or_else(|| {
        StepError::invalid(format!("invalid mode `{text}`: use octal digits, for example `0755`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts::parse(
            "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1001::/home/user:\nnobody:x:65534:65534::/:\n",
            "root:x:0:\nuser:x:1001:\nstaff:x:50:\n7:x:70:\nnogroup:x:65534:\n",
        )
    }

    fn owner(text: &str) -> std::result::Result<(u32, u32), String> {
        let accounts = accounts();
        let current = accounts.lookup("user").unwrap();
        parse(Some(text), &current, &accounts).map(|o| (o.uid, o.gid)).map_err(|e| e.to_string())
    }

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!(owner(""), Ok((1000, 1001)));
        assert_eq!(owner("root"), Ok((0, 0)));
        assert_eq!(owner("user"), Ok((1000, 1001)));
        assert_eq!(owner("user:staff"), Ok((1000, 50)));
        assert_eq!(owner("root:"), Ok((0, 0)));
        assert_eq!(owner(":staff"), Ok((1000, 50)));
        assert_eq!(owner("1000:50"), Ok((1000, 50)));
        assert_eq!(owner("4711"), Ok((4711, 4711)));
        assert_eq!(owner("4711:7"), Ok((4711, 70)));
        // There is no group of that name, so that it is the group of the account.
        assert_eq!(owner("nobody"), Ok((65534, 65534)));
    }

    #[test]
    fn an_unknown_owner_is_named_in_the_error() {
        assert!(owner("ghost").unwrap_err().contains("no user `ghost`"));
        assert!(owner("user:ghosts").unwrap_err().contains("no group `ghosts`"));
        assert!(owner("4294967295").is_err());
        assert!(owner("+5").is_err());
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode(None).unwrap(), None);
        assert_eq!(mode(Some("")).unwrap(), None);
        assert_eq!(mode(Some("0755")).unwrap(), Some(0o755));
        assert_eq!(mode(Some("4755")).unwrap(), Some(0o4755));
        for invalid in ["u+x", "0o755", "789", "77777", "-1"] {
            assert!(mode(Some(invalid)).unwrap_err().to_string().contains(invalid));
        }
    }
}
