//! `.dockerignore`: patterns as moby's `patternmatcher` evaluates them. They begin at the root of the context, a pattern that matches
//! a directory covers everything in it, and the last one that matches decides.

use std::path::{Path, PathBuf};

use regex::Regex;

use crate::error::{Error, Result};
use crate::pattern::{self, PatternError};

/// Patterns of files to leave out.
#[derive(Debug, Clone, Default)]
pub struct Ignore {
    rules: Vec<Rule>,
    /// File that the patterns are from.
    file: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct Rule {
    matches: Regex,
    /// Whether it begins with `!`, which includes files again.
    includes: bool,
    components: Vec<String>,
}

impl Ignore {
    /// Reads the patterns of a context: those of `DOCKERFILE.dockerignore` if that exists, or else of `.dockerignore`.
    ///
    /// # Errors
    /// If the file cannot be read or a pattern is invalid.
    pub fn of(context: &Path, dockerfile: &Path) -> Result<Self> {
        let mut specific = dockerfile.as_os_str().to_owned();
        specific.push(".dockerignore");
        for file in [PathBuf::from(specific), context.join(".dockerignore")] {
            match std::fs::read_to_string(&file) {
                Ok(text) => {
                    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                    let lines = text.lines().filter(|line| !line.starts_with('#'));
                    let mut ignore = Self::new(lines)
                        .map_err(|error| Error::new(format!("{} in `{}`", error.message, file.display())))?;
                    ignore.file = Some(file);
                    return Ok(ignore);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::new(format!("failed to read `{}`: {error}", file.display())));
                }
            }
        }
        Ok(Self::default())
    }

    /// Reads patterns, one for each text.
    ///
    /// # Errors
    /// If a pattern is invalid.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self> {
        let mut rules = Vec::new();
        for pattern in patterns {
            let text = pattern.trim();
            let (includes, text) = match text.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, text),
            };
            if text.is_empty() {
                if includes {
                    return Err(Error::new("the pattern `!` names no files"));
                }
                continue;
            }
            let cleaned = cleaned(text);
            let matches = compiled(&cleaned).map_err(|error| Error::new(error.to_string()))?;
            rules.push(Rule {
                matches,
                includes,
                components: cleaned.split('/').map(str::to_owned).collect(),
            });
        }
        Ok(Self { rules, file: None })
    }

    /// The file that the patterns are from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether a path relative to the context is left out.
    pub fn matches(&self, path: &str) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let mut of_parent = vec![false; self.rules.len()];
        let mut is_left_out = false;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let current = &path[..end];
            is_left_out = false;
            for (rule, of_parent) in self.rules.iter().zip(&mut of_parent) {
                // A rule that would change nothing is not evaluated, and does not cover what is below.
                let matches = *of_parent || (rule.includes == is_left_out && rule.matches.is_match(current));
                *of_parent = matches;
                if matches {
                    is_left_out = !rule.includes;
                }
            }
        }
        is_left_out
    }

    /// Whether a `!` pattern may include something below a directory that is left out.
    pub fn may_include_below(&self, directory: &str) -> bool {
        self.rules.iter().filter(|rule| rule.includes).any(|rule| {
            for (at, component) in directory.split('/').enumerate() {
                let Some(wanted) = rule.components.get(at) else { return false };
                if wanted.contains("**") {
                    return true;
                }
                if !wanted.contains(['*', '?', '[', '\\']) && wanted != component {
                    return false;
                }
            }
            rule.components.len() > directory.split('/').count()
        })
    }
}

/// A path without `.`, `..`, double and leading slashes, as far as that is possible.
fn cleaned(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if text.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn compiled(pattern: &str) -> std::result::Result<Regex, PatternError> {
    // `**name` also matches within a component, unlike `**` anywhere else.
    match pattern.strip_prefix("**") {
        Some(rest)
            if !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['*', '?', '[', ']', '\\']) =>
        {
            let ending = format!("(?s){}\\z", regex::escape(rest));
            Regex::new(&ending).map_err(|_| PatternError::Invalid(pattern.to_owned()))
        }
        _ => pattern::path(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of moby's patternmatcher.
    #[test]
    fn patterns_match_as_in_docker() {
        for (patterns, path, expected) in [
            ("**", "file", true),
            ("**/", "file", true),
            ("**/**", "dir/file", true),
            ("dir/**", "dir/file", true),
            ("dir/**", "dir/dir2/file", true),
            ("**/dir", "dir", true),
            ("**/dir", "dir/file", true),
            ("**/dir2/*", "dir/dir2/file", true),
            ("**/dir2/*", "dir/dir2/dir2/file", true),
            ("**file", "file", true),
            ("**file", "dir/file", true),
            ("**file", "dir/afile", true),
            ("**/file", "dir/file.txt", false),
            ("a**/*.txt", "a/file.txt", true),
            ("a**/*.txt", "a/dir/dir/file.txt", true),
            ("a/*.txt", "a/dir/file.txt", false),
            ("a[b-d]e", "ace", true),
            ("a[b-d]e", "aae", false),
            ("abc.def", "abcdef", false),
            ("abc?def", "abcZdef", true),
            ("a\\*b", "a*b", true),
            ("/fileutils.go", "fileutils.go", true),
            ("./a/../b", "b", true),
            ("docs", "docs/a/b", true),
            ("docs", "src/docs", false),
            ("docs;!docs/README.md", "docs/README.md", false),
            ("docs;!docs/README.md", "docs/other.md", true),
            ("*;!src", "src/a", false),
            ("*;!src;src/*.tmp", "src/a.tmp", true),
            ("!docs/README.md;docs", "docs/README.md", true),
            ("*.md;!README*.md", "README-secret.md", false),
            ("*.md;!README*.md;README-secret.md", "README-secret.md", true),
            ("", "a", false),
        ] {
            let ignore = Ignore::new(patterns.split(';')).unwrap();
            assert_eq!(ignore.matches(path), expected, "{patterns} {path}");
        }
    }

    #[test]
    fn directories_are_searched_only_for_patterns_that_reach_into_them() {
        let ignore = Ignore::new(["*", "!src/lib/**", "!docs/*.md"]).unwrap();
        for (directory, expected) in
            [("src", true), ("src/lib", true), ("docs", true), ("docs/a", false), ("target", false)]
        {
            assert_eq!(ignore.may_include_below(directory), expected, "{directory}");
        }
    }

    #[test]
    fn a_file_beside_the_dockerfile_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".dockerignore"), "# comment\na\n").unwrap();
        let dockerfile = dir.path().join("Dockerfile");
        assert!(Ignore::of(dir.path(), &dockerfile).unwrap().matches("a"));
        std::fs::write(dir.path().join("Dockerfile.dockerignore"), "b\n").unwrap();
        let ignore = Ignore::of(dir.path(), &dockerfile).unwrap();
        assert!(ignore.matches("b") && !ignore.matches("a"));
        std::fs::write(dir.path().join("Dockerfile.dockerignore"), "[\n").unwrap();
        assert!(Ignore::of(dir.path(), &dockerfile).unwrap_err().message.contains("Dockerfile.dockerignore"));
    }
}
