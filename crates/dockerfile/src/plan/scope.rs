//! Variables while a Dockerfile is evaluated (Dockerfile reference, "Scope" of `ARG`).

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::lex::{ExpandError, Lex, Lookup, Variables};
use crate::source::Instruction;

/// Arguments that `RUN` has without an `ARG`, if they are given.
pub(super) const PREDEFINED: &[&str] = &[
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// The variables before the first `FROM`, which `FROM` uses and stages may declare.
#[derive(Debug, Clone, Default)]
pub(super) struct Globals {
    platform: Vec<(&'static str, String)>,
    args: Vec<(String, Option<String>)>,
}

/// The variables of a stage. Those of `ENV` hide those of `ARG`.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    /// Variables of `ENV`. A value with a reference that only the server can expand is unknown here.
    pub env: BTreeMap<String, Option<String>>,
    /// Variables of `ARG`.
    pub args: BTreeMap<String, Option<String>>,
}

/// The platform that templates are built for: that of this machine, as server and sandboxes are usually on it.
pub(super) fn platform() -> (&'static str, &'static str) {
    match std::env::consts::ARCH {
        "x86_64" => ("linux/amd64", "amd64"),
        "aarch64" => ("linux/arm64", "arm64"),
        other => ("linux", other),
    }
}

impl Globals {
    pub(super) fn new(target: Option<&str>) -> Self {
        let (platform, architecture) = platform();
        let both = |name: [&'static str; 2], value: &str| name.map(|name| (name, value.to_owned()));
        let platform = [
            both(["TARGETPLATFORM", "BUILDPLATFORM"], platform),
            both(["TARGETOS", "BUILDOS"], "linux"),
            both(["TARGETARCH", "BUILDARCH"], architecture),
            both(["TARGETVARIANT", "BUILDVARIANT"], ""),
        ];
        let mut platform: Vec<_> = platform.into_iter().flatten().collect();
        platform.push(("TARGETSTAGE", target.unwrap_or("default").to_owned()));
        Self { platform, args: Vec::new() }
    }

    pub(super) fn declare(&mut self, name: String, value: Option<String>) {
        self.args.push((name, value));
    }

    /// The value that a stage gets for a name that it declares.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let arg = self.args.iter().rev().find(|(known, _)| known == name);
        match arg {
            Some((_, value)) => value.as_deref(),
            None => self.platform.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str()),
        }
    }
}

impl Variables for Globals {
    fn lookup(&self, name: &str) -> Lookup<'_> {
        let is_declared = self.args.iter().any(|(known, _)| known == name);
        match self.get(name) {
            Some(value) => Lookup::Set(value),
            None if is_declared => Lookup::Unset,
            None => Lookup::Unknown,
        }
    }
}

impl Variables for Scope {
    fn lookup(&self, name: &str) -> Lookup<'_> {
        match (self.env.get(name), self.args.get(name)) {
            (Some(Some(value)), _) | (None, Some(Some(value))) => Lookup::Set(value),
            (Some(None), _) | (None, None) => Lookup::Unknown,
            (None, Some(None)) => Lookup::Unset,
        }
    }
}

/// Expands a word of an instruction; every variable in it must be known.
///
/// # Errors
/// If the word is malformed or has a variable that neither `ARG` nor `ENV` sets.
pub(super) fn expand(
    variables: &dyn Variables,
    escape: char,
    at: &Instruction,
    word: &str,
) -> Result<String> {
    let lex = Lex { keep_unknown: false, variables, ..Lex::plain(escape) };
    let expanded = lex.expand(word).map_err(|reason| malformed(at, word, &reason))?;
    let Some(name) = expanded.unknown.first() else { return Ok(expanded.text) };
    Err(Error::at(at.line, format!("unknown variable `{name}` in {}", at.name)).hint(format!(
        "set it before with `ARG {name}=…` or `ENV {name}=…`; variables of the base image are not known here"
    )))
}

pub(super) fn malformed(at: &Instruction, word: &str, reason: &ExpandError) -> Error {
    Error::at(at.line, format!("malformed `{word}` in {}: {reason}", at.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_hides_arguments() {
        let mut scope = Scope::default();
        scope.args.insert("A".to_owned(), Some("arg".to_owned()));
        scope.args.insert("B".to_owned(), None);
        assert_eq!(scope.lookup("A"), Lookup::Set("arg"));
        assert_eq!((scope.lookup("B"), scope.lookup("C")), (Lookup::Unset, Lookup::Unknown));
        scope.env.insert("A".to_owned(), Some("env".to_owned()));
        assert_eq!(scope.lookup("A"), Lookup::Set("env"));
        scope.env.insert("A".to_owned(), None);
        assert_eq!(scope.lookup("A"), Lookup::Unknown, "only the server knows its value");
    }

    #[test]
    fn the_platform_is_known_unless_declared_otherwise() {
        let mut globals = Globals::new(None);
        assert_eq!(globals.get("TARGETOS"), Some("linux"));
        globals.declare("TARGETOS".to_owned(), Some("x".to_owned()));
        assert_eq!(globals.lookup("TARGETOS"), Lookup::Set("x"));
        assert_eq!(globals.lookup("NONE"), Lookup::Unknown);
    }
}
