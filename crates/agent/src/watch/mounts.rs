//! Mounts whose changes the kernel does not see, because other machines or programs make them.

use std::io;
use std::path::Path;

/// `f_type` of NFS, CIFS, SMB, SMB2 and FUSE, from `linux/magic.h`.
const NETWORK: [u64; 5] = [0x6969, 0xff53_4d42, 0x517b, 0xfe53_4d42, 0x6573_5546];

/// Whether `path` lies on a network or user-space mount.
pub(super) fn is_network(path: &Path) -> io::Result<bool> {
    let kind = rustix::fs::statfs(path)?.f_type;
    // The type of this field differs between architectures; the numbers have 32 bits.
    Ok(NETWORK.contains(&(kind as u64 & 0xffff_ffff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_systems_are_not_network_mounts() {
        assert!(!is_network(Path::new("/proc")).unwrap());
        assert!(is_network(Path::new("/nonexistent")).is_err());
    }
}
