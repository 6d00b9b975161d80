//! Expansion of variables in the values of `ENV` and `ARG` (contract: templates, sections 9.2 and 19). A value sees the variables
//! of earlier steps and those of a login shell, and none of its own step. Everything but `$NAME` and `${NAME}`, with an
//! alternative as in `${NAME:-alternative}`, is literal: backslashes, quotes, backticks and `$(`.

use std::collections::BTreeMap;

/// Depth to which alternatives are expanded.
const MAX_DEPTH: usize = 16;

/// Names of the variables that a value refers to.
pub(super) fn names(value: &str) -> Vec<String> {
    let mut names = Vec::new();
    expand_with(value, MAX_DEPTH, &mut |name| {
        names.push(name.to_owned());
        None
    });
    names
}

/// The value with its variables replaced; an unknown one is empty.
pub(super) fn expand(value: &str, known: &[&BTreeMap<String, String>]) -> String {
    expand_with(value, MAX_DEPTH, &mut |name| known.iter().find_map(|known| known.get(name).cloned()))
}

fn expand_with(value: &str, depth: usize, look_up: &mut dyn FnMut(&str) -> Option<String>) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(braced) = after.strip_prefix('{')
            && let Some(end) = closing(braced)
            && let Some(expanded) = reference(&braced[..end], depth, look_up)
        {
            text.push_str(&expanded);
            rest = &braced[end + 1..];
            continue;
        }
        match name_length(after) {
            0 => {
                text.push('$');
                rest = after;
            }
            length => {
                text.push_str(&look_up(&after[..length]).unwrap_or_default());
                rest = &after[length..];
            }
        }
    }
    text.push_str(rest);
    text
}

/// The value of what is between braces; `None` for a form that is left as it is.
fn reference(inside: &str, depth: usize, look_up: &mut dyn FnMut(&str) -> Option<String>) -> Option<String> {
    let (name, rest) = inside.split_at(name_length(inside));
    if name.is_empty() {
        return None;
    }
    if rest.is_empty() {
        return Some(look_up(name).unwrap_or_default());
    }
    let (empty_is_unset, operator) = match rest.strip_prefix(':') {
        Some(operator) => (true, operator),
        None => (false, rest),
    };
    let alternative = |word: &str, look_up: &mut dyn FnMut(&str) -> Option<String>| match depth {
        0 => word.to_owned(),
        depth => expand_with(word, depth - 1, look_up),
    };
    let set =
        |value: &Option<String>| value.as_ref().is_some_and(|value| !(empty_is_unset && value.is_empty()));
    if let Some(word) = operator.strip_prefix('-') {
        let value = look_up(name);
        return Some(if set(&value) { value.unwrap_or_default() } else { alternative(word, look_up) });
    }
    if let Some(word) = operator.strip_prefix('+') {
        let value = look_up(name);
        return Some(if set(&value) { alternative(word, look_up) } else { String::new() });
    }
    None
}

/// The index of the brace that closes one that is open at the start.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    let bytes = text.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if index > 0 && bytes[index - 1] == b'$' => open += 1,
            b'}' if open == 0 => return Some(index),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// The length of the name at the start of a text; 0 when there is none.
fn name_length(text: &str) -> usize {
    let is_part = |(index, byte): (usize, u8)| {
        byte == b'_' || byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit())
    };
    text.bytes().enumerate().take_while(|part| is_part(*part)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known() -> BTreeMap<String, String> {
        let pairs = [("A", "one"), ("B_2", "two"), ("EMPTY", "")];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn expanded(value: &str) -> String {
        expand(value, &[&known()])
    }

    #[test]
    fn variables_are_replaced_and_unknown_ones_are_empty() {
        assert_eq!(expanded("$A-${B_2}x$A$B_2"), "one-twoxonetwo");
        assert_eq!(expanded("/opt/$NONE:${NONE}"), "/opt/:");
        assert_eq!(expanded("${A}$"), "one$");
    }

    #[test]
    fn alternatives_are_used_as_in_a_shell() {
        assert_eq!(expanded("${A:-x}${NONE:-y}${EMPTY:-z}${EMPTY-z}"), "oneyz");
        assert_eq!(expanded("${A:+x}${NONE:+y}${EMPTY:+z}${EMPTY+z}"), "xz");
        assert_eq!(expanded("${NONE:-${B_2}/$A}"), "two/one");
    }

    #[test]
    fn everything_else_is_literal() {
        for literal in
            ["$", "$$", "$1", "${", "${}", "${A", "$(date)", "`date`", r#"a"b\c"#, "${A%x}", "${#A}"]
        {
            assert_eq!(expanded(literal), literal);
        }
        assert_eq!(expanded(r"\$A"), r"\one");
    }

    #[test]
    fn earlier_maps_come_first() {
        let other =
            BTreeMap::from([("A".to_owned(), "other".to_owned()), ("C".to_owned(), "three".to_owned())]);
        assert_eq!(expand("$A$C", &[&known(), &other]), "onethree");
    }

    #[test]
    fn names_are_those_a_value_refers_to() {
        assert_eq!(names("$A ${B_2:-$C} $(D) $1"), ["A", "B_2", "C"]);
        assert!(names("plain").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_expanded(value in "[${}A:+a-]{0,64}") {
            let _ = expanded(&value);
            let _ = names(&value);
        }

        #[test]
        fn text_without_dollars_stays(value in "[^$]{0,64}") {
            prop_assert_eq!(expanded(&value), value);
        }
    }
}
