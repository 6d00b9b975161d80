//! Expansion of variables in the values of `ENV` and `ARG` (contract: templates, sections 9.2 and 19). A value sees the variables
//! of earlier steps and those of a login shell, and none of its own step. Everything but `$NAME` and `${NAME}`, with an
//! alternative as in `${NAME:-alternative}`, is literal: backslashes, quotes, backticks and `$(`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::failure::Failure;

/// Depth to which alternatives are expanded.
const MAX_DEPTH: usize = 16;
/// Maximum size of all variables of a build with their names, bytes. The kernel starts no program with a single one that is longer.
const MAX_BYTES: usize = 128 << 10;

/// Variables by name.
type Variables = BTreeMap<String, String>;

/// The variables of a build take more than they may.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the variables of the build take more than {} KiB, the maximum: set fewer or shorter ones", MAX_BYTES >> 10)]
pub(super) struct TooManyVariables;

impl From<TooManyVariables> for Failure {
    fn from(error: TooManyVariables) -> Self {
        Self::new(error.to_string())
    }
}

/// Sets the variables of a step. `login` are those of a login shell.
///
/// # Errors
/// If the variables take too much then. Some are set even so.
pub(super) fn set(
    variables: &mut Variables,
    pairs: &[(String, String)],
    login: &Variables,
) -> Result<(), TooManyVariables> {
    let before = variables.clone();
    let mut total = total(variables);
    for (name, value) in pairs {
        let value = expand(value, &[&before, login])?;
        total += size(name, &value);
        if let Some(replaced) = variables.insert(name.clone(), value) {
            total -= size(name, &replaced);
        }
        if total > MAX_BYTES {
            return Err(TooManyVariables);
        }
    }
    Ok(())
}

/// Checks the variables that a build begins with.
///
/// # Errors
/// If they take too much.
pub(super) fn check(variables: &Variables) -> Result<(), TooManyVariables> {
    if total(variables) > MAX_BYTES { Err(TooManyVariables) } else { Ok(()) }
}

fn total(variables: &Variables) -> usize {
    variables.iter().map(|(name, value)| size(name, value)).sum()
}

/// Size of a variable as programs get it: with `=` and a zero byte.
fn size(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

/// Names of the variables that a value may refer to, also in alternatives that are not used.
pub(super) fn names(value: &str) -> BTreeSet<&str> {
    let after = value.match_indices('$').map(|(at, _)| &value[at + 1..]);
    let names =
        after.map(|after| after.strip_prefix('{').unwrap_or(after)).map(|after| &after[..name_length(after)]);
    names.filter(|name| !name.is_empty()).collect()
}

/// The value with its variables replaced; an unknown one is empty.
fn expand(value: &str, known: &[&Variables]) -> Result<String, TooManyVariables> {
    if value.len() > MAX_BYTES {
        return Err(TooManyVariables);
    }
    let mut expansion = Expansion { value, closing: closing(value), known, text: String::new() };
    expansion.expand(0, value.len(), MAX_DEPTH)?;
    Ok(expansion.text)
}

/// A value that is being expanded.
struct Expansion<'a> {
    value: &'a str,
    /// Indices of the braces that close a reference, by those of the `$` that begins it.
    closing: HashMap<usize, usize>,
    known: &'a [&'a Variables],
    text: String,
}

impl<'a> Expansion<'a> {
    fn look_up(&self, name: &str) -> Option<&'a str> {
        self.known.iter().find_map(|known| known.get(name)).map(String::as_str)
    }

    /// Appends the part of the value between two indices.
    fn expand(&mut self, mut from: usize, to: usize, depth: usize) -> Result<(), TooManyVariables> {
        let value = self.value;
        while let Some(at) = value[from..to].find('$').map(|at| from + at) {
            self.push(&value[from..at])?;
            if let Some(&end) = self.closing.get(&at)
                && self.reference(at + 2, end, depth)?
            {
                from = end + 1;
                continue;
            }
            from = at + 1 + name_length(&value[at + 1..to]);
            match &value[at + 1..from] {
                "" => self.push("$")?,
                name => self.push(self.look_up(name).unwrap_or_default())?,
            }
        }
        self.push(&value[from..to])
    }

    /// Appends the value of what is between braces. False for a form that is left as it is.
    fn reference(&mut self, from: usize, to: usize, depth: usize) -> Result<bool, TooManyVariables> {
        let inside = &self.value[from..to];
        let (name, rest) = inside.split_at(name_length(inside));
        if name.is_empty() {
            return Ok(false);
        }
        let (empty_is_unset, operator) = match rest.strip_prefix(':') {
            Some(operator) => (true, operator),
            None => (false, rest),
        };
        let (is_wanted, shows_value): (fn(bool) -> bool, _) = match operator.bytes().next() {
            None if rest.is_empty() => (|_| false, true),
            Some(b'-') => (|is_set| !is_set, true),
            Some(b'+') => (|is_set| is_set, false),
            _ => return Ok(false),
        };
        let found = self.look_up(name);
        let is_set = found.is_some_and(|found| !(empty_is_unset && found.is_empty()));
        if is_wanted(is_set) {
            self.alternative(to + 1 - operator.len(), to, depth)?;
        } else if shows_value {
            self.push(found.unwrap_or_default())?;
        }
        Ok(true)
    }

    fn alternative(&mut self, from: usize, to: usize, depth: usize) -> Result<(), TooManyVariables> {
        match depth {
            0 => self.push(&self.value[from..to]),
            depth => self.expand(from, to, depth - 1),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), TooManyVariables> {
        if self.text.len() + text.len() > MAX_BYTES {
            return Err(TooManyVariables);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Pairs each `${` with the brace that closes it.
fn closing(value: &str) -> HashMap<usize, usize> {
    let (mut open, mut closing) = (Vec::new(), HashMap::new());
    let bytes = value.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if index > 0 && bytes[index - 1] == b'$' => open.push(index - 1),
            b'}' => closing.extend(open.pop().map(|begin| (begin, index))),
            _ => {}
        }
    }
    closing
}

#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) mod fuzzing {
    use super::{MAX_BYTES, Variables, names, set, total};

    /// Checks steps of a build: each line is a name, `=` and a value.
    pub fn variables(input: &[u8]) {
        let text = String::from_utf8_lossy(input);
        let login = Variables::from([("HOME".to_owned(), "/root".to_owned())]);
        let mut variables = Variables::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            assert!(names(value).is_empty() || value.contains('$'));
            if set(&mut variables, &[(name.to_owned(), value.to_owned())], &login).is_err() {
                return;
            }
            assert!(total(&variables) <= MAX_BYTES);
            if !value.contains('$') {
                assert_eq!(variables[name], value, "a literal was changed");
            }
        }
    }
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
        expand(value, &[&known()]).unwrap()
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
        assert_eq!(expand("$A$C", &[&known(), &other]).unwrap(), "onethree");
    }

    #[test]
    fn names_are_those_a_value_refers_to() {
        assert_eq!(names("$A ${B_2:+$C} $(D) $1 $A"), BTreeSet::from(["A", "B_2", "C"]));
        assert!(names("plain").is_empty());
    }

    fn pair(name: &str, value: &str) -> [(String, String); 1] {
        [(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn values_do_not_grow_without_end() {
        let (mut variables, none) = (Variables::new(), Variables::new());
        set(&mut variables, &pair("A", "x"), &none).unwrap();
        let doubled = (0..40).find_map(|_| set(&mut variables, &pair("A", "$A$A"), &none).err());
        let text =
            "the variables of the build take more than 128 KiB, the maximum: set fewer or shorter ones";
        assert_eq!(doubled.unwrap().to_string(), text);
        set(&mut variables, &pair("A", &"x".repeat(1000)), &none).unwrap();
        for value in ["${A:-}".repeat(1000), "$NONE".repeat(MAX_BYTES)] {
            assert_eq!(set(&mut variables, &pair("B", &value), &none), Err(TooManyVariables));
        }
    }

    #[test]
    fn all_variables_together_are_limited_whoever_sets_them() {
        let (mut variables, none) = (Variables::new(), Variables::new());
        let value = "x".repeat(MAX_BYTES / 4 - 3);
        // A variable that is set again counts once.
        for name in ["A", "B", "A", "C", "D", "A"] {
            set(&mut variables, &pair(name, &value), &none).unwrap();
        }
        check(&variables).unwrap();
        assert_eq!(set(&mut variables, &pair("E", ""), &none), Err(TooManyVariables));
        assert_eq!(check(&variables), Err(TooManyVariables));
    }

    #[test]
    fn braces_are_paired_in_one_pass() {
        // Each of them was searched for to the end of the text.
        let open = "${A".repeat(1 << 15);
        assert_eq!(closing(&open).len(), 0);
        let odd = format!("{}{}", "${%".repeat(1 << 14), "}".repeat(1 << 14));
        assert_eq!(expanded(&odd), odd);
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
