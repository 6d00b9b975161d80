//! Flags of instructions: which exist, what their values are, and that none is duplicated.

use crate::error::{Error, Result};
use crate::source::Instruction;

/// A kind of flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A switch: `--name`, `--name=true` or `--name=false`.
    Switch,
    /// A flag with a value: `--name=value`.
    Value,
    /// A repeatable flag with a value: `--name=value`.
    Values,
}

/// The flags of an instruction.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    given: Vec<(&'static str, String)>,
}

impl Flags {
    /// Reads the flags of an instruction that takes those in `known`.
    ///
    /// # Errors
    /// If a flag is unknown or duplicated, or has a wrong value.
    pub(crate) fn read(instruction: &Instruction, known: &[(&'static str, Kind)]) -> Result<Self> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for flag in &instruction.flags {
            let error = |message: String| Error::at(instruction.line, message);
            let body = flag.strip_prefix("--").unwrap_or(flag);
            let (name, value) = match body.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (body, None),
            };
            let keyword = &instruction.name;
            let Some((name, kind)) = known.iter().find(|(known, _)| *known == name) else {
                let names: Vec<String> = known.iter().map(|(name, _)| format!("--{name}")).collect();
                let unknown = error(format!("unknown flag `--{name}` of {keyword}"));
                return Err(match names.as_slice() {
                    [] => unknown.hint(format!("{keyword} has no flags")),
                    _ => unknown.hint(format!("{keyword} has {}", names.join(", "))),
                });
            };
            if *kind != Kind::Values && given.iter().any(|(known, _)| known == name) {
                return Err(error(format!("the flag `--{name}` of {keyword} is duplicated")));
            }
            let value = match (kind, value) {
                (Kind::Switch, None | Some("" | "true")) => "true",
                (Kind::Switch, Some("false")) => "false",
                (Kind::Switch, Some(other)) => {
                    return Err(error(format!("`--{name}` takes `true` or `false`, not `{other}`")));
                }
                (Kind::Value | Kind::Values, Some(value)) => value,
                (Kind::Value | Kind::Values, None) => {
                    return Err(error(format!(
                        "the flag `--{name}` of {keyword} needs a value: `--{name}=…`"
                    )));
                }
            };
            given.push((name, value.to_owned()));
        }
        Ok(Self { given })
    }

    /// The value of a flag.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The values of a flag that is repeatable.
    pub(crate) fn values<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.given.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on; `None` if it is not given.
    pub(crate) fn switch(&self, name: &str) -> Option<bool> {
        self.value(name).map(|value| value == "true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parse;

    fn read(text: &str) -> std::result::Result<Flags, String> {
        const KNOWN: &[(&str, Kind)] =
            &[("from", Kind::Value), ("link", Kind::Switch), ("exclude", Kind::Values)];
        Flags::read(&parse(text).unwrap().instructions[0], KNOWN).map_err(|error| error.located("f"))
    }

    #[test]
    fn flags_are_checked() {
        let flags = read("COPY --from=a --link --exclude=x --exclude=y b c").unwrap();
        assert_eq!((flags.value("from"), flags.switch("link")), (Some("a"), Some(true)));
        assert_eq!(flags.values("exclude").collect::<Vec<_>>(), ["x", "y"]);
        for (text, message) in [
            (
                "COPY --form=a b c",
                "f:1: unknown flag `--form` of COPY\nhint: COPY has --from, --link, --exclude",
            ),
            ("COPY --from=a --from=b c d", "f:1: the flag `--from` of COPY is duplicated"),
            ("COPY --from a b", "f:1: the flag `--from` of COPY needs a value: `--from=…`"),
            ("COPY --link=maybe a b", "f:1: `--link` takes `true` or `false`, not `maybe`"),
        ] {
            assert_eq!(read(text).unwrap_err(), message);
        }
    }
}
