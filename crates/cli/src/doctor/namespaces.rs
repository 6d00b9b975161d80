//! Whether the kernel has namespaces, and gives them to this process. A number above zero in `max_user_namespaces` does not say so:
//! the kernel refuses user namespaces to a process in a chroot, and container runtimes filter the system calls.

use std::path::Path;
use std::process::Command;

use super::checks::{first_line, read};
use super::{Check, Status};

/// Minimum number of user namespaces: one for each sandbox and a few for the server.
const MIN_USER_NAMESPACES: u64 = 100;

/// The namespaces of a sandbox, as options of unshare(1).
const ALL: [&str; 7] = ["--user", "--pid", "--mount", "--net", "--ipc", "--uts", "--cgroup"];

/// Checks that the kernel was built with every kind.
pub(super) fn known() -> Check {
    let wanted = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
    let missing: Vec<&str> =
        wanted.into_iter().filter(|name| !Path::new("/proc/self/ns").join(name).exists()).collect();
    let found =
        if missing.is_empty() { "all seven".to_owned() } else { format!("without {}", missing.join(", ")) };
    Check::when(
        missing.is_empty(),
        "namespaces",
        found,
        Status::Missing,
        "use a kernel built with these namespaces",
    )
}

/// Checks that a process may create those of a sandbox, by creating them.
pub(super) fn user() -> Check {
    let name = "user namespaces";
    let limit: u64 =
        read("/proc/sys/user/max_user_namespaces").and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if limit < MIN_USER_NAMESPACES {
        let hint = "raise it: sysctl user.max_user_namespaces=10000";
        return Check::when(false, name, format!("at most {limit}"), Status::Missing, hint);
    }
    match create(&ALL) {
        Ok(()) => Check::ok(name, format!("can be created, at most {limit}")),
        Err(reason) => {
            let found = format!("cannot be created: {reason}");
            Check::when(false, name, found, Status::Missing, hint(&reason))
        }
    }
}

/// Starts a program in new namespaces; the error is why it did not start.
fn create(namespaces: &[&str]) -> Result<(), String> {
    // The program is of no account: in a user namespace without a map of ids it is nobody.
    let tried = Command::new("unshare").args(namespaces).args(["--fork", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(cause(&first_line(&output)).to_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// The error of the kernel in a message like `unshare: unshare failed: Operation not permitted`.
fn cause(message: &str) -> &str {
    message.strip_prefix("unshare: unshare failed: ").unwrap_or(message)
}

/// Advice for an error. Nothing tells a chroot from other causes for sure, so the most frequent ones are named.
fn hint(reason: &str) -> &'static str {
    if reason == "Operation not permitted" {
        "in a chroot the kernel refuses them: run Sandcove outside, or in a container; in a container, allow clone, clone3, unshare \
         and setns, as `--privileged` does; elsewhere, look at kernel.unprivileged_userns_clone, AppArmor and SELinux"
    } else {
        "sandboxes need them; `unshare --user true` shows the error, dmesg may say more"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_error_is_shown_without_the_name_of_the_tool() {
        assert_eq!(cause("unshare: unshare failed: Operation not permitted"), "Operation not permitted");
        assert_eq!(cause("signal: 9 (SIGKILL)"), "signal: 9 (SIGKILL)");
    }

    #[test]
    fn a_namespace_that_cannot_be_created_is_an_error_with_its_reason() {
        assert_eq!(create(&[]), Ok(()));
        let reason = create(&["--no-such-namespace"]).unwrap_err();
        assert!(reason.contains("no-such-namespace"), "{reason}");
    }

    #[test]
    fn a_refusal_comes_with_where_to_look() {
        let refused = hint("Operation not permitted");
        assert!(refused.contains("chroot") && refused.contains("--privileged"), "{refused}");
        assert!(hint("No space left on device").contains("unshare --user true"));
    }
}
