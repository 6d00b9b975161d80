//! CRIU's log.

/// Errors that are not why CRIU fails: of its own limit of open files, where root may not raise limits, and of a device that it looks for.
const HARMLESS: [&str; 2] = ["RLIMIT_NOFILE", "(criu/tun.c"];

/// The first error of a log.
pub(crate) fn first_error(log: &str) -> String {
    let errors = log.lines().filter(|line| !HARMLESS.iter().any(|harmless| line.contains(harmless)));
    let texts = errors.filter_map(|line| line.split_once("Error (")?.1.split_once("): "));
    texts.map(|(_, text)| text.trim().to_owned()).next().unwrap_or_else(|| "CRIU gave no reason".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_error_that_is_not_about_criu_itself() {
        let log = "(00.1) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n\
                   (00.2) Warn  (criu/mount.c:1): nothing\n\
                   (00.3) Error (criu/sk-netlink.c:1): netlink: The socket has data to read\n\
                   (00.4) Error (criu/cr-dump.c:1975): Dumping FAILED.\n";
        assert_eq!(first_error(log), "netlink: The socket has data to read");
        assert_eq!(first_error(""), "CRIU gave no reason");
    }
}
