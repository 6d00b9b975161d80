//! Keys of the step cache (contract: templates, section 10). A key is a digest of everything that the files after a step
//! depend on: the base by its contents, and the steps up to this one. It does not depend on processors, memory, and the start and
//! ready commands, which change no files.

use std::fmt;

use sha2::{Digest, Sha256};

/// Version of the steps' semantics: a change of what steps do to files changes it.
const VERSION: &str = "1";

/// The key of a base or a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// The key of a base, from everything that tells it from other bases.
    pub(super) fn of_base(parts: &[&str]) -> Self {
        digest([VERSION, "base"].iter().chain(parts))
    }

    /// The key of a step after this one.
    pub(super) fn then<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Self {
        let before = self.to_string();
        let parts: Vec<&str> = parts.into_iter().collect();
        digest([before.as_str()].iter().chain(&parts))
    }

    /// The first 32 hexadecimal digits.
    pub(super) fn short(&self) -> String {
        self.to_string().chars().take(32).collect()
    }
}

/// The digest of texts, each behind its length, so that no two lists have the same digest.
fn digest<'a>(parts: impl Iterator<Item = &'a &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    Key(digest.finalize().into())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_everything_before_it() {
        let base = Key::of_base(&["team", "layer"]);
        let step = base.then(["RUN", "true"]);
        assert_eq!(step, Key::of_base(&["team", "layer"]).then(["RUN", "true"]));
        assert_ne!(step, Key::of_base(&["team", "other"]).then(["RUN", "true"]));
        assert_ne!(step, base.then(["RUN", "false"]));
        assert_ne!(step.then(["RUN", "true"]), step);
    }

    #[test]
    fn arguments_do_not_run_together() {
        let base = Key::of_base(&[]);
        assert_ne!(base.then(["RUN", "ab", "c"]), base.then(["RUN", "a", "bc"]));
        assert_ne!(base.then(["RUN", "a b"]), base.then(["RUN", "a", "b"]));
        assert_ne!(base.then(["RUN", "a", ""]), base.then(["RUN", "a"]));
    }

    #[test]
    fn names_are_hexadecimal() {
        let key = Key::of_base(&["x"]);
        assert_eq!(key.to_string().len(), 64);
        assert!(key.to_string().starts_with(&key.short()));
        assert!(key.short().bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
