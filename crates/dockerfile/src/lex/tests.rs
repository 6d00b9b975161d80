use super::*;

struct Known;

impl Variables for Known {
    fn lookup(&self, name: &str) -> Lookup<'_> {
        match name {
            "A" => Lookup::Set("value"),
            "EMPTY" => Lookup::Set(""),
            "PATHS" => Lookup::Set("/a/b/c"),
            "DECLARED" => Lookup::Unset,
            _ => Lookup::Unknown,
        }
    }
}

fn lex(keep_unknown: bool) -> Lex<'static> {
    Lex { keep_unknown, variables: &Known, ..Lex::plain('\\') }
}

fn text(source: &str) -> String {
    lex(false).expand(source).map_or_else(|error| format!("error: {error}"), |expanded| expanded.text)
}

#[test]
fn variables_and_modifiers_expand_as_in_buildkit() {
    for (source, expected) in [
        ("$A/${A}", "value/value"),
        ("$A_x|$", "|$"),
        ("${EMPTY:-d}|${EMPTY-d}|${NONE-d}", "d||d"),
        ("${A:+x}|${EMPTY:+x}|${EMPTY+x}|${NONE+x}", "x||x|"),
        ("${NONE:-${A}}", "value"),
        ("${PATHS#*/}|${PATHS##*/}|${PATHS%/*}|${PATHS%%/*}", "a/b/c|c|/a/b|"),
        ("${PATHS/\\//_}|${PATHS//\\//_}", "_a/b/c|_a_b_c"),
        (r#"'$A' "$A" \$A "\$A" "a\b""#, r#"$A value $A $A a\b"#),
        ("${A?no}|${A:?no}", "value|value"),
        ("${NONE?it is needed}", "error: NONE: it is needed"),
        ("${NONE:?}", "error: `NONE` must be set"),
        ("${A", "error: `}` is missing"),
        ("${A:-x", "error: `}` is missing"),
        ("${}", "error: bad substitution"),
        ("${A^}", "error: unsupported modifier `^` of `A`"),
        ("'a", "error: a single quote is not closed"),
        ("\"a", "error: a double quote is not closed"),
        ("a\\", "a"),
    ] {
        assert_eq!(text(source), expected, "{source}");
    }
}

#[test]
fn unknown_variables_are_kept_or_reported() {
    let kept = lex(true).expand("$X:${X}/${X:-a b}${X//a/b}$DECLARED").unwrap();
    assert_eq!((kept.text.as_str(), kept.unknown.len()), ("$X:${X}/${X:-a b}${X//a/b}", 0));
    let lost = lex(false).expand("$X $DECLARED ${Y} ${X} ${Z:-d}").unwrap();
    assert_eq!(lost.unknown, ["X", "Y"]);
    assert!(lex(true).expand("'$X'").unwrap().literal_dollar && !kept.literal_dollar);
}

#[test]
fn words_end_at_plain_spaces() {
    let words = lex(false).expand("a 'b c'\\ d  \"\" $A").unwrap().words;
    assert_eq!(words, ["a", "b c d", "value"]);
}

#[test]
fn nesting_has_a_limit() {
    assert!(text(&"${A:-".repeat(10_000)).starts_with("error: "));
}

proptest::proptest! {
    #[test]
    fn the_lexer_never_panics(text in ".{0,60}", odd in "[$\\{}'\"<:#%/A \\\\-]{0,40}") {
        let _ = lex(true).expand(&text);
        let _ = lex(false).expand(&odd);
    }
}
