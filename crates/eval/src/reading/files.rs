//! Paths and globs.

use std::path::{Path, PathBuf};

/// Resolves a path as configurations write it: with or without `file://`, relative to `base`.
pub fn resolve(base: &Path, path: &str) -> PathBuf {
    base.join(path.strip_prefix("file://").unwrap_or(path))
}

/// Splits a `file://` reference to code into the path and the name after its colon.
pub fn split_name(reference: &str) -> (&str, Option<&str>) {
    let path = reference.strip_prefix("file://").unwrap_or(reference);
    match path.rsplit_once(':') {
        Some((path, name)) if !name.is_empty() && !name.contains(['/', '\\']) => (path, Some(name)),
        _ => (path, None),
    }
}

/// Whether a path is a glob.
pub fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '[', '{'])
}

/// Returns the files that a path or glob stands for, sorted. Braces as in `{a,b}` are expanded.
pub fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = braces(pattern)
        .iter()
        .filter_map(|pattern| glob::glob(pattern).ok())
        .flatten()
        .filter_map(Result::ok)
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn braces(pattern: &str) -> Vec<String> {
    let Some(open) = pattern.find('{') else { return vec![pattern.to_owned()] };
    let Some(close) = pattern[open..].find('}').map(|at| open + at) else { return vec![pattern.to_owned()] };
    let choices = pattern[open + 1..close].split(',');
    choices
        .flat_map(|choice| braces(&format!("{}{choice}{}", &pattern[..open], &pattern[close + 1..])))
        .collect()
}

/// Returns the extension in lowercase, without the name of a function after it.
pub fn extension(path: &str) -> String {
    let (path, _) = split_name(path);
    Path::new(path)
        .extension()
        .map(|extension| extension.to_string_lossy().to_lowercase())
        .unwrap_or_default()
}

/// Whether an extension is one of JavaScript's or TypeScript's.
pub fn is_javascript(extension: &str) -> bool {
    matches!(extension, "js" | "cjs" | "mjs" | "ts" | "cts" | "mts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_follow_the_path() {
        assert_eq!(split_name("file://a/b.py:get"), ("a/b.py", Some("get")));
        assert_eq!(split_name("file://a/b.py"), ("a/b.py", None));
        assert_eq!(braces("a.{js,ts}"), ["a.js", "a.ts"]);
        assert_eq!(extension("file://x/y.PY:f"), "py");
    }
}
