//! Patterns of names, with `*` and `?`.

/// Whether a name fits a pattern: `*` stands for anything, `?` for one character; upper and lower case are the same.
pub fn matches(pattern: &str, text: &str) -> bool {
    let options = glob::MatchOptions { case_sensitive: false, ..glob::MatchOptions::default() };
    // Other signs of patterns are plain text here.
    let plain: String =
        pattern.chars().map(|c| if "[]".contains(c) { format!("[{c}]") } else { c.to_string() }).collect();
    glob::Pattern::new(&plain.replace("**", "*")).is_ok_and(|pattern| pattern.matches_with(text, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_globs() {
        assert!(matches("review-*", "Review-code"));
        assert!(matches("a?c", "abc"));
        assert!(matches("a[b]", "a[b]"));
        assert!(matches("*", "a/b c"));
        assert!(!matches("review", "review-code"));
    }
}
