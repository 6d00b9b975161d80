//! Mutators of Bash.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Mutator;

/// The mutators by name.
pub(super) const MUTATORS: &[(&str, Mutator)] = &[
    ("exec-base64", eval_base64),
    ("exec-hex", eval_hex),
    ("here-document", here_document),
    ("braces", braces),
    ("variables", variables),
];

fn eval_base64(code: &str) -> String {
    format!("eval \"$(printf %s '{}' | base64 -d)\"\n", STANDARD.encode(code))
}

fn eval_hex(code: &str) -> String {
    let hex: String = code.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("eval \"$(printf '{hex}')\"\n")
}

fn here_document(code: &str) -> String {
    format!("bash <<'PROBE_END'\n{code}\nPROBE_END\n")
}

fn braces(code: &str) -> String {
    format!("eval \"$({}base64,-d{} <<< '{}')\"\n", '{', '}', STANDARD.encode(code))
}

fn variables(code: &str) -> String {
    format!("a=ba; b=se; c=64\nd=$($a$b$c -d <<< '{}')\neval \"$d\"\n", STANDARD.encode(code))
}
