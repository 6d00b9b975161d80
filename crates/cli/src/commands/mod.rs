//! One file for each command. A command resolves what it needs, does the work, and returns the exit code of the process.

pub mod audit;
pub mod backup;
mod candidates;
pub mod completions;
pub mod config;
pub mod copy;
pub mod daemon;
mod done;
mod egress;
pub mod env;
pub mod eval;
pub mod exec;
pub mod files;
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
pub mod share;
pub mod snapshot;
pub mod stored;
pub mod template;
pub mod top;
pub mod trust;
pub mod validate;
pub mod view;
pub mod volume;
pub mod webhook;

use crate::output::note;

// The errors of parsers of arguments are texts: clap shows them behind the flag and its value, and nothing else handles them.

/// Parses `NAME=VALUE`.
pub fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("expected NAME=VALUE, not `{text}`")),
    }
}

/// Parses a timeout, which is not zero: seconds, or a number with a unit, such as `5m`.
pub fn timeout(text: &str) -> Result<u32, String> {
    match seconds(text) {
        Ok(0) => Err("expected a time that is not zero".to_owned()),
        parsed => parsed,
    }
}

/// Parses a time: seconds, or a number with a unit, such as `5m`.
pub fn seconds(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let number = digits.parse::<u32>().ok();
    number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| "expected seconds, or a number with s, m, h or d, such as 5m".to_owned())
}

/// The first `limit` entries of a list, or all if it is 0; says how many there are when some are left out.
pub fn first<T>(mut entries: Vec<T>, limit: usize) -> Vec<T> {
    if limit > 0 && entries.len() > limit {
        note!("showing {limit} of {}; --limit 0 lists all", entries.len());
        entries.truncate(limit);
    }
    entries
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
    fn timeouts_have_units() {
        for (text, seconds) in [("300", 300), ("90s", 90), ("5m", 300), ("24h", 86_400), ("1d", 86_400)] {
            assert_eq!(timeout(text), Ok(seconds), "{text}");
        }
        for text in ["", "0", "0m", "m", "5x", "5 m", "-5", "1.5h", "5M", "99999d", "٣m"] {
            assert!(timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        assert_eq!(first(vec![1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(first(vec![1, 2, 3], 2), [1, 2]);
        assert_eq!(first(vec![1], 2), [1]);
    }

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([count(0, "test"), count(1, "test"), count(2, "test")], ["0 tests", "1 test", "2 tests"]);
        assert_eq!([count(1, "sandbox"), count(2, "sandbox")], ["1 sandbox", "2 sandboxes"]);
    }
}
