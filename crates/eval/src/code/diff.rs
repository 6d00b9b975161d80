//! Taking a patch out of an answer.

use std::collections::BTreeSet;

use super::extract::fenced_blocks;

/// The unified diff of an answer: its fences that are diffs, one after another; without any, the answer from where a diff begins.
pub(super) fn diff_of(answer: &str) -> Option<String> {
    let blocks = fenced_blocks(answer);
    let diffs: Vec<String> = blocks.into_iter().filter_map(|block| from_start(&block)).collect();
    let diff = if diffs.is_empty() { from_start(answer)? } else { diffs.concat() };
    Some(diff)
}

/// From the first line of a diff on, ending with a line feed.
fn from_start(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = |at: usize| {
        lines[at].starts_with("diff --git ")
            || (lines[at].starts_with("--- ")
                && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ ")))
    };
    let start = (0..lines.len()).find(|at| starts(*at))?;
    let body = &lines[start..];
    // What a model says behind its diff is no part of it.
    let end = body
        .iter()
        .rposition(|line| line.starts_with(['+', '-', ' ', '@', '\\']) || line.starts_with("diff "));
    Some(body[..=end?].join("\n") + "\n")
}

/// Whether a diff has a header that reaches into `.git`, from where files are put back. Git refuses such a patch by itself, but
/// `patch` does not.
pub(super) fn reaches_into_git(diff: &str) -> bool {
    const HEADERS: [&str; 7] = ["--- ", "+++ ", "*** ", "Index:", "diff ", "rename ", "copy "];
    let headers = diff.lines().filter(|line| HEADERS.iter().any(|start| line.starts_with(start)));
    headers
        .into_iter()
        .any(|line| line.split([' ', '\t', '/', '"']).any(|part| part.eq_ignore_ascii_case(".git")))
}

/// The files that a diff is about.
pub(super) fn paths(diff: &str) -> BTreeSet<String> {
    let named = |line: &str| {
        let path = line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- "))?;
        let path = path.split('\t').next().unwrap_or(path).trim();
        (path != "/dev/null")
            .then(|| path.strip_prefix("a/").or(path.strip_prefix("b/")).unwrap_or(path).to_owned())
    };
    diff.lines().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn diffs_are_found_in_answers() {
        assert_eq!(diff_of(&format!("So:\n```diff\n{DIFF}```\nDone.")).as_deref(), Some(DIFF));
        assert_eq!(diff_of(&format!("So:\n\n{DIFF}")).as_deref(), Some(DIFF));
        assert_eq!(diff_of(&format!("{DIFF}\n\nThat is all")).as_deref(), Some(DIFF));
        let two = format!("```\n{DIFF}```\nand\n```patch\n{DIFF}```");
        assert_eq!(diff_of(&two), Some(DIFF.repeat(2)));
        assert_eq!(diff_of("```python\nprint(1)\n```"), None);
    }

    #[test]
    fn headers_that_reach_into_git_are_seen() {
        assert!(reaches_into_git("--- a/.git/config\n+++ b/.git/config\n"));
        assert!(!reaches_into_git("--- a/.gitignore\n+++ b/.gitignore\n+see .git/config\n"));
    }

    #[test]
    fn paths_are_those_of_both_sides() {
        let names: Vec<String> =
            paths("--- a/x.py\n+++ b/y.py\n--- /dev/null\n+++ b/z\t2026\n").into_iter().collect();
        assert_eq!(names, ["x.py", "y.py", "z"]);
    }
}
