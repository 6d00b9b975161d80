//! The variables of a context: global ones, and those of a single execution (contract: interpreter, section 6). Pure: a
//! kernel is sent the changes computed here.

use std::collections::BTreeMap;

use crate::kernel::request::Change;

/// The global variables, as far as they are known.
#[derive(Debug, Default)]
pub struct Variables {
    /// `None` until the agent has answered.
    globals: Option<BTreeMap<String, String>>,
}

impl Variables {
    /// Takes `globals` as the variables of the sandbox.
    pub fn new(globals: BTreeMap<String, String>) -> Self {
        Self { globals: Some(globals) }
    }

    /// Whether the global variables have been read.
    pub fn are_known(&self) -> bool {
        self.globals.is_some()
    }

    /// Changes for a kernel that has no global variables yet.
    pub fn globals(&self) -> Vec<Change> {
        self.globals.iter().flat_map(settable).map(set).collect()
    }

    /// Changes that take the global variables from a kernel.
    pub fn removed(&self) -> Vec<Change> {
        self.globals.iter().flat_map(settable).map(|(name, _)| (name.to_owned(), None)).collect()
    }

    /// Changes before an execution with variables of its own.
    pub fn overrides(&self, own: &BTreeMap<String, String>) -> Vec<Change> {
        settable(own).map(set).collect()
    }

    /// Changes after that execution: its variables get their global values again, or are removed.
    pub fn restored(&self, own: &BTreeMap<String, String>) -> Vec<Change> {
        let global = |name: &str| self.globals.as_ref().and_then(|globals| globals.get(name)).cloned();
        settable(own).map(|(name, _)| (name.to_owned(), global(name))).collect()
    }
}

fn set((name, value): (&str, &str)) -> Change {
    (name.to_owned(), Some(value.to_owned()))
}

/// The variables that an environment can hold.
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
    #[test]
    fn after_an_execution_its_variables_are_global_again_or_gone() {
        let texts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let own = texts(&[("G", "mine"), ("O", "1")]);
        let change = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let variables = Variables::new(texts(&[("G", "global"), ("H", "other")]));
        assert_eq!(variables.removed(), [change("G", None), change("H", None)]);
        assert_eq!(variables.overrides(&own), [change("G", Some("mine")), change("O", Some("1"))]);
        assert_eq!(variables.restored(&own), [change("G", Some("global")), change("O", None)]);
        assert_eq!(Variables::default().restored(&own), [change("G", None), change("O", None)]);
    }
}
