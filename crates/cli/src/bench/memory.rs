//! Memory as the kernel counts it, on the server's own host.

use std::fs;
use std::path::{Path, PathBuf};

use sandcove_wire::id::SandboxId;
use serde_json::Value;

/// Bytes of memory in use on this host, without what the kernel could reclaim.
pub fn used_by_host() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kib(&text, "MemTotal:")?.checked_sub(kib(&text, "MemAvailable:")?)
}

/// Bytes of all processes of a sandbox, each shared page divided by its users (PSS). `None` when they are not visible.
pub fn of_sandbox(data_dir: &Path, id: &SandboxId) -> Option<u64> {
    let record = fs::read(data_dir.join("run").join(id.as_str()).join("jail.json")).ok()?;
    let record: Value = serde_json::from_slice(&record).ok()?;
    let first = PathBuf::from(format!("/proc/{}", record["pid"].as_u64()?));
    of_namespace(&fs::read_link(first.join("ns/pid")).ok()?)
}

fn of_namespace(namespace: &Path) -> Option<u64> {
    let is_number = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<u32>().is_ok())
    };
    // A process that ends in the meantime counts as nothing.
    let pss = |process: PathBuf| kib(&fs::read_to_string(process.join("smaps_rollup")).ok()?, "Pss:");
    let processes =
        fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()).filter(|path| is_number(path));
    let weights: Vec<u64> = processes
        .filter(|process| fs::read_link(process.join("ns/pid")).is_ok_and(|link| link == namespace))
        .filter_map(pss)
        .collect();
    (!weights.is_empty()).then(|| weights.iter().sum())
}

/// The value of a line such as `Pss:   120 kB`, in bytes.
fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_their_whole_name() {
        let text = "Rss:      200 kB\nPss:      100 kB\nPss_Anon:  50 kB\n";
        assert_eq!(kib(text, "Pss:"), Some(102_400));
        assert_eq!(kib(text, "Swap:"), None);
    }

    #[test]
    fn processes_of_our_own_namespace_weigh_something() {
        let own = fs::read_link("/proc/self/ns/pid").unwrap();
        assert!(of_namespace(&own).unwrap() > 0);
        assert_eq!(of_namespace(Path::new("pid:[1]")), None);
        assert!(used_by_host().unwrap() > 0);
    }
}
