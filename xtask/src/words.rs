//! Words: phrases that no text of the project uses, and doc comments that do not name what they describe.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Phrases that a reader stumbles over, each with what says it better.
const NEVER: &[(&str, &str)] = &[
    ("is told", "say reported, logged, notified or returned"),
    ("are told", "say reported, logged, notified or returned"),
    ("told of", "say notified of"),
    ("look after", "say manage"),
    ("looks after", "say manages"),
    ("cannot be gone on with", "say cannot be resumed"),
    ("is no format", "say unknown format"),
    ("is no provider", "say unknown provider"),
    ("cannot be had", "say not available"),
    ("forget them all", "say delete all"),
    ("See the module.", "describe the item"),
];

/// Words that a doc comment does not begin with: there is no sentence before it that they could refer to.
const PRONOUNS: &[&str] = &[
    "It", "Its", "They", "Them", "Their", "Theirs", "He", "Which", "What", "Who", "Whom", "Whose", "This",
    "That", "These", "Those",
];

/// Words that a doc comment does not begin with because there is one for them: "Maximum number of rows", not "Most rows".
const VAGUE: &[&str] = &["Most", "Longest", "Such", "Likewise"];

/// Files that quote the phrases on purpose, or that are generated.
const EXEMPT: &[&str] = &["xtask/src/words.rs", "crates/wire/src/envd/", "LICENSE", "Cargo.lock"];

/// Refuses the phrases of [`NEVER`] in every text under version control, doc comments of Rust items that begin with a pronoun or a
/// vague word or are one word, and names of constants that begin otherwise than those of other bounds.
pub fn check(root: &Path) -> Result<()> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("failed to run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut broken = Vec::new();
    for file in String::from_utf8_lossy(&output.stdout).split_terminator('\0') {
        if EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            continue;
        }
        // Files that are not text, or that are deleted and not yet committed so, have no words.
        if let Ok(text) = std::fs::read_to_string(root.join(file)) {
            broken.extend(problems(&text, file.ends_with(".rs")).into_iter().map(|p| format!("{file}:{p}")));
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

/// Complaints about one text, each beginning with its line number.
fn problems(text: &str, is_rust: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        for (phrase, instead) in NEVER {
            if contains(line, phrase) {
                problems.push(format!("{number}: \"{phrase}\": {instead}"));
            }
        }
        let comment = line.trim_start().strip_prefix("///");
        if let (true, false, Some(comment)) = (is_rust, is_inside, comment) {
            let comment = comment.trim();
            let first = comment.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if PRONOUNS.contains(&first) || comment.starts_with("The same") {
                problems.push(format!("{number}: the doc comment begins with \"{first}\": name the noun"));
            } else if VAGUE.contains(&first) {
                problems.push(format!(
                    "{number}: the doc comment begins with \"{first}\": say \"Maximum …\", or name the noun"
                ));
            } else if comment.split_whitespace().count() == 1 && !continues(text, number) {
                problems.push(format!("{number}: the doc comment is one word: say what it is of"));
            }
        }
        is_inside = comment.is_some();
        if is_rust && ["const MOST", "const LONGEST"].iter().any(|start| line.contains(start)) {
            problems.push(format!("{number}: the name of the constant begins with MAX_, as others do"));
        }
    }
    problems
}

/// Whether the doc comment that begins in line `number`, counted from 1, has another line.
fn continues(text: &str, number: usize) -> bool {
    text.lines().nth(number).is_some_and(|next| next.trim_start().starts_with("///"))
}

/// Whether `line` has the phrase, and not only as a part of longer words.
fn contains(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_as_words() {
        assert_eq!(problems("whoever is told\nhe foretold offers; this is toldered", false).len(), 1);
    }

    #[test]
    fn doc_comments_name_their_noun() {
        for bad in [
            "/// Its length.",
            "    /// Which.",
            "/// The same for two.",
            "/// Seconds.",
            "/// Most rows at a time.",
            "const MOST: u8 = 1;",
        ] {
            assert_eq!(problems(bad, true).len(), 1, "{bad}");
        }
        let good = "/// Length of the queue.\n/// It may be zero.\nfn f();\n// It is a plain comment.\n/// Seconds\n/// of time.";
        assert_eq!(problems(good, true), Vec::<String>::new());
    }
}
