//! Names of types: within a crate, one that more than its own room sees stands for one thing only.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::rooms;

/// Names that several rooms of a crate have, each with the reason.
const SHARED: &[(&str, &str)] = &[
    ("Error", "a room that has one error calls it that, and others write the room before it"),
    ("Result", "the alias for the error of a room"),
];

/// Sources whose names are not ours.
const GENERATED: &[&str] = &["crates/wire/src/envd/"];

/// Refuses two types with one name that are `pub` or `pub(crate)` in one crate.
pub fn check(root: &Path) -> Result<()> {
    let mut broken = Vec::new();
    for (name, sources) in rooms::crates(root)? {
        let mut files = Vec::new();
        rooms::list(&sources, &mut files)?;
        files.sort();
        let mut texts = Vec::new();
        for file in files {
            let shown = file.strip_prefix(root)?.display().to_string();
            let is_of_tests = file.components().any(|part| part.as_os_str() == "tests");
            if !is_of_tests && !GENERATED.iter().any(|generated| shown.starts_with(generated)) {
                texts.push((shown, std::fs::read_to_string(&file)?));
            }
        }
        broken.extend(problems(&texts).into_iter().map(|problem| format!("{name}: {problem}")));
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

/// Complaints about the files of one crate, each a path and its text.
fn problems(files: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (file, text) in files {
        for (number, line) in (1..).zip(text.lines()) {
            // Tests come last in a file.
            if line == "mod tests {" {
                break;
            }
            if let Some(name) = type_in(line).filter(|name| SHARED.iter().all(|(shared, _)| shared != name)) {
                places.entry(name).or_default().push(format!("{file}:{number}"));
            }
        }
    }
    let repeated = places.into_iter().filter(|(_, places)| places.len() > 1);
    repeated
        .map(|(name, places)| {
            format!("several types are called {name}: name each for what it is ({})", places.join(", "))
        })
        .collect()
}

/// Returns the name of the type that a line declares for the whole crate or for others.
fn type_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let item = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "))?;
    let item = item.strip_prefix("unsafe ").unwrap_or(item);
    let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
    let rest = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        problems(&files)
    }

    #[test]
    fn two_types_with_one_name_are_refused_with_their_places() {
        let found = of(&[("a.rs", "\npub struct Entry<'a> {"), ("b.rs", "pub(crate) enum Entry {")]);
        assert_eq!(
            found,
            ["several types are called Entry: name each for what it is (a.rs:2, b.rs:1)".to_owned()]
        );
    }

    #[test]
    fn names_within_a_room_and_names_of_errors_may_repeat() {
        let own = "pub(super) struct Entry;\nstruct Entry;\npub fn entry() {}\npub type Result<T> = X<T>;";
        let tests = "pub enum Error {}\nmod tests {\npub struct Entry;";
        assert_eq!(
            of(&[("a.rs", "pub struct Entry;"), ("b.rs", own), ("c.rs", tests)]),
            Vec::<String>::new()
        );
    }
}
