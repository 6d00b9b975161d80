//! One file for each command. A command resolves what it needs, does the work, and returns the exit code of the process.

pub mod audit;
pub mod backup;
pub mod completions;
pub mod config;
pub mod copy;
pub mod daemon;
mod egress;
pub mod env;
pub mod eval;
pub mod exec;
pub mod format;
pub mod forward;
pub mod generate;
pub mod keys;
pub mod lifecycle;
pub mod list;
pub mod mcp;
pub mod observe;
pub mod operate;
pub mod ports;
pub mod purge;
pub mod reach;
pub mod redteam;
pub mod restore;
pub mod run;
pub mod sandbox;
pub mod secret;
pub mod serve;
pub mod snapshot;
pub mod stored;
pub mod template;
pub mod top;
pub mod trust;
pub mod validate;
pub mod view;
pub mod volume;
pub mod webhook;

/// Parses `NAME=VALUE`.
pub fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("expected NAME=VALUE, not `{text}`")),
    }
}

/// Formats a number with its noun in singular or plural.
pub fn count(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('x') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_split_at_the_first_equals_sign() {
        assert_eq!(variable("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert!(variable("=x").is_err());
        assert!(variable("x").is_err());
    }

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([count(0, "test"), count(1, "test"), count(2, "test")], ["0 tests", "1 test", "2 tests"]);
        assert_eq!([count(1, "sandbox"), count(2, "sandbox")], ["1 sandbox", "2 sandboxes"]);
    }
}
