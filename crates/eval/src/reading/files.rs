//! Paths and globs.

use std::cmp::Ordering;
use std::path::{Components, Path, PathBuf};

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

/// Returns the files that a path or glob stands for, in the order of promptfoo, which decides about columns and tests: the files of a
/// directory before those of directories in it, and both from the last name to the first. Braces as in `{a,b}` are expanded.
pub fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = braces(pattern)
        .iter()
        .filter_map(|pattern| glob::glob(pattern).ok())
        .flatten()
        .filter_map(Result::ok)
        .filter(|path| path.is_file())
        .collect();
    found.sort_by(|a, b| walked(a, b));
    found.dedup();
    found
}

/// The order in which a walk comes to two files.
fn walked(a: &Path, b: &Path) -> Ordering {
    let (mut a, mut b) = (a.components().peekable(), b.components().peekable());
    while let (Some(first), Some(second)) = (a.next(), b.next()) {
        if first != second {
            let is_inside = |rest: &mut std::iter::Peekable<Components<'_>>| rest.peek().is_some();
            return is_inside(&mut a).cmp(&is_inside(&mut b)).then_with(|| second.cmp(&first));
        }
    }
    Ordering::Equal
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
    matches!(extension, "js" | "cjs" | "mjs") || is_typescript(extension)
}

/// Whether an extension is one of TypeScript's.
pub fn is_typescript(extension: &str) -> bool {
    matches!(extension, "ts" | "cts" | "mts")
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

    #[test]
    fn globs_are_in_the_order_of_a_walk() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.txt", "c/a.txt", "c/b.txt", "d/a.txt"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = expand(&format!("{}/**/*.txt", dir.path().display()));
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(dir.path()).unwrap()).collect();
        let walked = ["b.txt", "a.txt", "d/a.txt", "c/b.txt", "c/a.txt"];
        assert_eq!(names, walked.map(Path::new));
    }
}
