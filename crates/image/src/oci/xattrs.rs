//! Extended attributes of files in layers.

/// Maximum size of one value that file systems take, bytes.
const MAX_VALUE: usize = 64 << 10;
const MAX_NAME: usize = 255;

/// Returns the value to set for an attribute of a layer, `None` if it is dropped. Attributes of users and the capabilities of programs are
/// kept. Those of the host's security modules, of overlayfs and of `trusted.*` have a meaning for the kernel outside of the sandbox.
pub(super) fn kept<'a>(name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
    if name.len() > MAX_NAME || value.len() > MAX_VALUE || name.contains('\0') {
        return None;
    }
    if name == "security.capability" {
        return is_capability(value).then_some(value);
    }
    let user = name.strip_prefix("user.")?;
    (!user.is_empty() && !user.starts_with("overlay.")).then_some(value)
}

/// Whether the value is a set of capabilities for root inside: version 2. Version 3 names the root of some user namespace of the
/// machine that built the image.
fn is_capability(value: &[u8]) -> bool {
    const VERSION_2: u8 = 2;
    value.len() == 20 && value[3] == VERSION_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_meaning_inside_is_kept() {
        let ping = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut other_root = ping.to_vec();
        other_root[3] = 3;
        other_root.extend([0, 0, 1, 0]);
        assert_eq!(kept("security.capability", &ping), Some(&ping[..]));
        assert_eq!(kept("user.mime", b"text"), Some(&b"text"[..]));
        assert_eq!(kept("user.empty", b""), Some(&b""[..]));
        for (name, value) in [
            ("security.capability", &other_root[..]),
            ("security.capability", b""),
            ("security.selinux", b"x"),
            ("trusted.overlay.opaque", b"y"),
            ("user.overlay.opaque", b"y"),
            ("system.posix_acl_access", b"x"),
            ("user.", b"x"),
            ("", b"x"),
        ] {
            assert_eq!(kept(name, value), None, "{name}");
        }
    }
}
