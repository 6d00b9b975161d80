//! The identity of the sandbox that a context is in. It changes when the memory of this process is restored in another sandbox: then the
//! variables are others, and random numbers must not be those that the sandbox of before gets.

use std::fs;

/// File of the agent with the id of the sandbox (contract: envd, section 6).
const FILE: &str = "/run/e2b/.E2B_SANDBOX_ID";

/// The id of the sandbox, as a context has seen it last.
#[derive(Debug, Default)]
pub(super) struct Identity(Option<String>);

impl Identity {
    /// Reads the id; true when it is another one than before, or the first one: a kernel that has run nothing yet may be a copy, too.
    pub(super) fn has_changed(&mut self) -> bool {
        self.see(fs::read_to_string(FILE).ok())
    }

    fn see(&mut self, present: Option<String>) -> bool {
        let changed = present.is_some() && self.0 != present;
        if changed {
            self.0 = present;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_cannot_be_read_is_no_change() {
        let mut identity = Identity::default();
        let seen = [None, Some("a"), Some("a"), None, Some("a"), Some("b"), Some("b")];
        let changes = seen.map(|id| identity.see(id.map(str::to_owned)));
        assert_eq!(changes, [false, true, false, false, false, true, false]);
    }
}
