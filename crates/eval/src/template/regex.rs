//! Regular expressions in templates, by the JavaScript engine.

use super::value::Val;
use crate::javascript;

/// `text.replace(/body/flags, with)`.
pub fn replace(text: &str, body: &str, flags: &str, with: &str) -> Val {
    let code = "(t, b, f, w) => t.replace(new RegExp(b, f), w)";
    javascript::call(code, &[text.into(), body.into(), flags.into(), with.into()])
        .map_or_else(|_| Val::from(text.to_owned()), Val::Json)
}
