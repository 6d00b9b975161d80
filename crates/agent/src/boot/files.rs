//! The files that describe a sandbox inside (contract: envd, section 6). A sandbox starts without them too, so failures are only
//! logged.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sandcove_wire::boot::Boot;

use crate::state::{EVENTS_ADDRESS, Identity};

/// Host name of the events address.
const EVENTS_NAME: &str = "events.e2b.local";

/// Writes the files that are the same in all sandboxes of the template.
pub(super) fn write(boot: &Boot) {
    attempt("/etc/hostname", write_if_different("/etc/hostname", &format!("{}\n", boot.hostname)));
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    attempt("/etc/hosts", write_if_different("/etc/hosts", &with_own_names(&hosts, &boot.hostname)));
    if !boot.nameservers.is_empty() {
        attempt("/etc/resolv.conf", write_if_different("/etc/resolv.conf", &resolver(&boot.nameservers)));
    }
    attempt(".E2B_SANDBOX", write_fact(".E2B_SANDBOX", "true"));
}

/// Writes the files with the identity of this sandbox.
pub(super) fn write_identity(identity: &Identity) {
    for (name, value) in
        [(".E2B_SANDBOX_ID", &identity.sandbox_id), (".E2B_TEMPLATE_ID", &identity.template_id)]
    {
        attempt(name, write_fact(name, value));
    }
}

fn attempt(file: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(file, %error, "failed to write a file of the system");
    }
}

fn write_fact(name: &str, value: &str) -> io::Result<()> {
    let directory = Path::new("/run/e2b");
    fs::create_dir_all(directory)?;
    let path = directory.join(name);
    write_if_different(&path, value)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444))
}

/// Writes a file unless it has this content already, so that it does not take space in every sandbox.
fn write_if_different(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let path = path.as_ref();
    if fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    match fs::write(path, text) {
        // A dangling link, as images of full systems have for the resolver.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            fs::remove_file(path)?;
            fs::write(path, text)
        }
        result => result,
    }
}

fn resolver(nameservers: &[IpAddr]) -> String {
    nameservers.iter().fold(String::new(), |mut text, server| {
        let _ = writeln!(text, "nameserver {server}");
        text
    })
}

/// The host table with the names of the sandbox, and with what others have written into it.
fn with_own_names(present: &str, hostname: &str) -> String {
    const OWN_ADDRESS: &str = "127.0.1.1";
    let names = |line: &str| -> Vec<String> {
        let content = line.split('#').next().unwrap_or_default();
        content.split_whitespace().map(str::to_owned).collect()
    };
    let ours = |line: &&str| {
        let words = names(line);
        words.iter().any(|word| word == EVENTS_NAME)
            || words.first().is_some_and(|address| address == OWN_ADDRESS)
    };
    let mut text: String =
        present.lines().filter(|line| !ours(line)).map(|line| format!("{line}\n")).collect();
    let known =
        |address: &str| present.lines().any(|line| names(line).first().is_some_and(|first| first == address));
    for (address, rest) in [("127.0.0.1", "localhost"), ("::1", "localhost ip6-localhost ip6-loopback")] {
        if !known(address) {
            let _ = writeln!(text, "{address}\t{rest}");
        }
    }
    let _ = writeln!(text, "{OWN_ADDRESS}\t{hostname}");
    let _ = writeln!(text, "{EVENTS_ADDRESS}\t{EVENTS_NAME}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_host_table_gets_all_names() {
        let expected = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                        127.0.1.1\te2b\n192.0.2.1\tevents.e2b.local\n";
        assert_eq!(with_own_names("", "e2b"), expected);
    }

    #[test]
    fn what_users_added_stays_and_a_second_boot_changes_nothing() {
        let first = with_own_names("127.0.0.1 localhost mine # note\n10.0.0.1 db\n", "one");
        assert!(first.starts_with("127.0.0.1 localhost mine # note\n10.0.0.1 db\n::1"), "{first}");
        assert_eq!(with_own_names(&first, "one"), first);
        let renamed = with_own_names(&first, "two");
        assert!(renamed.contains("127.0.1.1\ttwo\n") && !renamed.contains("one"), "{renamed}");
    }

    #[test]
    fn a_dangling_link_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("resolv.conf");
        std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap();
        write_if_different(&path, &resolver(&["8.8.8.8".parse().unwrap()])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 8.8.8.8\n");
    }
}
