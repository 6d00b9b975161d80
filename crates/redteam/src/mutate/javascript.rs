//! Mutators of JavaScript.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Mutator;

/// The mutators by name.
pub(super) const MUTATORS: &[(&str, Mutator)] =
    &[("function", function), ("constructor", constructor), ("dynamic-import", dynamic_import)];

fn decoded(code: &str) -> String {
    format!("Buffer.from(\"{}\", \"base64\").toString()", STANDARD.encode(code))
}

fn function(code: &str) -> String {
    format!("await eval(\"(async () => {{\\n\" + {} + \"\\n}})()\");\n", decoded(code))
}

fn constructor(code: &str) -> String {
    format!("await (async () => 0)[\"const\" + \"ructor\"]({})();\n", decoded(code))
}

fn dynamic_import(code: &str) -> String {
    format!("await import(\"data:text/javascript;base64,{}\");\n", STANDARD.encode(code))
}
