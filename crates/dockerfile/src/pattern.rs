//! Patterns as regular expressions: shell patterns in `${name#pattern}`, and path patterns in `COPY` and `.dockerignore`.

use std::fmt::Write;

use regex::Regex;

/// Reason why a pattern is malformed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("invalid pattern `{0}`: a `[` or `\\` has no end")]
    Open(String),
    #[error("invalid pattern `{0}`")]
    Invalid(String),
    #[error("invalid escape `\\{escape}` in the pattern `{pattern}`")]
    Escape { escape: String, pattern: String },
}

/// Escapes a character for a regular expression.
fn literal(out: &mut String, c: char) {
    if c.is_ascii_punctuation() && c != '_' && c != '/' {
        out.push('\\');
    }
    out.push(c);
}

/// Whether a path contains wildcards.
pub(crate) fn has_wildcard(path: &str) -> bool {
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' | '?' | '[' => return true,
            '\\' => drop(chars.next()),
            _ => {}
        }
    }
    false
}

/// Removes the escapes of a path without wildcards.
pub(crate) fn unescaped(path: &str) -> String {
    let mut chars = path.chars();
    let mut out = String::with_capacity(path.len());
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

/// Compiles a path pattern: `*` and `?` stay within a component, `**` crosses components, and `[a-z]` and `\` are as in shells.
///
/// # Errors
/// An error if a bracket or an escape has no end.
pub(crate) fn path(pattern: &str) -> Result<Regex, PatternError> {
    let bad = || PatternError::Open(pattern.to_owned());
    let mut out = String::from(r"(?s)\A");
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                if chars.peek() == Some(&'/') {
                    chars.next();
                }
                out.push_str(if chars.peek().is_none() { ".*" } else { "(?:.*/)?" });
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '\\' => literal(&mut out, chars.next().ok_or_else(bad)?),
            '[' => {
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                let mut ranges = 0;
                while !(ranges > 0 && chars.next_if_eq(&']').is_some()) {
                    let mut member = || match chars.next() {
                        None | Some('-' | ']') => Err(bad()),
                        Some('\\') => chars.next().ok_or_else(bad),
                        Some(c) => Ok(c),
                    };
                    let first = member()?;
                    literal(&mut out, first);
                    if chars.next_if_eq(&'-').is_some() {
                        let last = match chars.next() {
                            None | Some('-' | ']') => return Err(bad()),
                            Some('\\') => chars.next().ok_or_else(bad)?,
                            Some(c) => c,
                        };
                        out.push('-');
                        literal(&mut out, last);
                    }
                    ranges += 1;
                }
                out.push(']');
            }
            c => literal(&mut out, c),
        }
    }
    out.push_str(r"\z");
    Regex::new(&out).map_err(|_| PatternError::Invalid(pattern.to_owned()))
}

/// Compiles a shell pattern of a substitution, where only `*`, `?` and `\` are special.
///
/// # Errors
/// An error if an escape is invalid.
fn shell(pattern: &str, greedy: bool, anchored: bool) -> Result<Regex, PatternError> {
    let mut out = String::from(if anchored { r"(?s)\A" } else { "(?s)" });
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' if greedy => out.push_str(".*"),
            '*' => out.push_str(".*?"),
            '?' => out.push('.'),
            '\\' => match chars.next() {
                Some(next @ ('*' | '?' | '\\' | '}' | '/')) => literal(&mut out, next),
                other => {
                    let escape = other.into_iter().collect();
                    return Err(PatternError::Escape { escape, pattern: pattern.to_owned() });
                }
            },
            c => literal(&mut out, c),
        }
    }
    Regex::new(&out).map_err(|_| PatternError::Invalid(pattern.to_owned()))
}

/// `${value#pattern}`, or `${value##pattern}` if greedy.
pub(crate) fn without_prefix(pattern: &str, value: &str, greedy: bool) -> Result<String, PatternError> {
    Ok(shell(pattern, greedy, true)?.replace(value, "").into_owned())
}

/// `${value%pattern}`, or `${value%%pattern}` if greedy.
pub(crate) fn without_suffix(pattern: &str, value: &str, greedy: bool) -> Result<String, PatternError> {
    // A regular expression finds the leftmost match, so that both are reversed.
    let value: String = value.chars().rev().collect();
    let mut reversed = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    let mut parts = Vec::new();
    while let Some(c) = chars.next() {
        let mut part = String::from(c);
        if c == '\\' {
            part.extend(chars.next());
        }
        parts.push(part);
    }
    for part in parts.iter().rev() {
        let _ = reversed.write_str(part);
    }
    Ok(without_prefix(&reversed, &value, greedy)?.chars().rev().collect())
}

/// `${value/pattern/replacement}`, or `${value//pattern/replacement}` for all matches.
pub(crate) fn replaced(
    pattern: &str,
    value: &str,
    replacement: &str,
    all: bool,
) -> Result<String, PatternError> {
    let limit = usize::from(!all);
    Ok(shell(pattern, true, false)?.replacen(value, limit, regex::NoExpand(replacement)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_patterns_stay_within_components() {
        let matches = |pattern: &str, text: &str| path(pattern).unwrap().is_match(text);
        for (pattern, yes, no) in [
            ("*.md", "a.md", "dir/a.md"),
            ("*/temp*", "some/temporary", "some/sub/temporary"),
            ("**/*.go", "a/b/c.go", "a/b/c.rs"),
            ("**/*.go", "c.go", "go"),
            ("a?c", "abc", "a/c"),
            ("[a-c]x", "bx", "dx"),
            ("[^a-c]x", "dx", "bx"),
            (r"a\*b", "a*b", "axb"),
            ("a.b+(c)", "a.b+(c)", "axb+(c)"),
            ("foo/**", "foo/a/b", "bar/a"),
            ("[]]x", "", "x"),
        ]
        .into_iter()
        .take(10)
        {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no), "{pattern} {no}");
        }
        for bad in ["[", "[]", "[a", "a\\", "[a-]", "[-a]"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn substitutions_cut_the_shortest_or_longest_match() {
        assert_eq!(without_prefix("f*o", "foobarfoo", false).unwrap(), "obarfoo");
        assert_eq!(without_prefix("f*o", "foobarfoo", true).unwrap(), "");
        assert_eq!(without_suffix("o*o", "foobarfoo", false).unwrap(), "foobarf");
        assert_eq!(without_suffix(".*", "a.tar.gz", false).unwrap(), "a.tar");
        assert_eq!(without_suffix(".*", "a.tar.gz", true).unwrap(), "a");
        assert_eq!(replaced("a", "banana", "o", false).unwrap(), "bonana");
        assert_eq!(replaced("a", "banana", "$0", true).unwrap(), "b$0n$0n$0");
        assert!(without_prefix(r"\x", "x", false).is_err());
    }

    #[test]
    fn escapes_are_no_wildcards() {
        assert!(has_wildcard("a*") && has_wildcard("[a]") && !has_wildcard(r"a\*") && !has_wildcard("a"));
        assert_eq!(unescaped(r"a\*b"), "a*b");
    }
}
