//! Words of command lines.

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_with_special_characters_are_quoted() {
        assert_eq!(
            ["a-b/c", "a b", "it's", "", "$x"].map(quoted),
            ["a-b/c", "'a b'", r"'it'\''s'", "''", "'$x'"]
        );
    }
}
