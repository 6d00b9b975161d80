//! The variables of a context: global ones, and those of a single execution (contract: interpreter, section 6).

use std::collections::BTreeMap;

use crate::kernel::Kernel;
use crate::kernel::frame::Request;

/// The global variables, as far as they are known.
#[derive(Debug, Default)]
pub struct Variables {
    /// `None` until the agent has told.
    globals: Option<BTreeMap<String, String>>,
}

impl Variables {
    /// Takes `globals` as the variables of the sandbox.
    pub fn new(globals: BTreeMap<String, String>) -> Self {
        Self { globals: Some(globals) }
    }

    /// Whether the global variables have been read.
    pub fn known(&self) -> bool {
        self.globals.is_some()
    }

    /// Sets the global variables in a kernel that has not had them.
    pub fn install(&self, kernel: &Kernel) {
        for (name, value) in self.globals.iter().flat_map(settable) {
            kernel.request(&Request::Set(name, value));
        }
    }

    /// Sets the variables of one execution.
    pub fn override_with(&self, own: &BTreeMap<String, String>, kernel: &Kernel) {
        for (name, value) in settable(own) {
            kernel.request(&Request::Set(name, value));
        }
    }

    /// Gives the variables of one execution their global values again, or removes them.
    pub fn restore(&self, own: &BTreeMap<String, String>, kernel: &Kernel) {
        for (name, _) in settable(own) {
            kernel.request(&match self.globals.as_ref().and_then(|globals| globals.get(name)) {
                Some(value) => Request::Set(name, value),
                None => Request::Unset(name),
            });
        }
    }
}

/// The variables an environment can hold at all.
fn settable(variables: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    variables
        .iter()
        .filter(|(name, value)| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'))
        .map(|(name, value)| (name.as_str(), value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_environment_cannot_hold_is_left_out() {
        let pairs = [("A", "1"), ("", "2"), ("B=C", "3"), ("D", "x\0y"), ("E", "a=b")];
        let variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(settable(&variables).collect::<Vec<_>>(), [("A", "1"), ("E", "a=b")]);
    }
}
