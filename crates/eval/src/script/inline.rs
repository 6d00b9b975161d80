//! Inline JavaScript: whether the engine can run it, and the function that it is the body of.

use crate::javascript::JavaScriptError;

/// Names that only Node has, or has in full: the engine sorts and writes by no language.
const OF_NODE: &[&str] = &[
    "require(",
    "mainModule",
    "import(",
    "Buffer.",
    "fetch(",
    "typeof fetch",
    "setTimeout(",
    "setInterval(",
    "URL(",
    "URLSearchParams",
    "TextEncoder",
    "TextDecoder",
    "atob(",
    "btoa(",
    "structuredClone(",
    "performance.",
    "crypto.",
    "Intl.",
    ".toLocale",
    ".localeCompare(",
];

/// Whether code uses what only Node has.
pub fn needs_node(code: &str) -> bool {
    let other_process =
        || code.split("process.").skip(1).any(|after| !after.starts_with("env") && !after.starts_with(' '));
    OF_NODE.iter().any(|word| code.contains(word)) || other_process()
}

/// Whether code failed because the engine lacks a name that Node may have. Nothing it did before has left the engine, so that it can run again.
pub fn lacks_a_name(error: &JavaScriptError) -> bool {
    matches!(error, JavaScriptError::Threw(message) if message.starts_with("ReferenceError"))
}

/// Returns the function that inline code of an assertion is the body of.
pub fn inline_function(code: &str) -> String {
    let body = inline_body(code);
    let process = if code.contains("process") { "const process = { env };" } else { "" };
    let provider = if code.contains("provider.id()") { PROVIDER_ID } else { "" };
    format!("function (output, context, env) {{ {process}{provider}{body}\n}}")
}

/// Makes the id of the provider a method as well as a text, as scripts of files have it.
const PROVIDER_ID: &str = "if (typeof context?.provider?.id === 'string') { const id = context.provider.id; \
    context.provider.id = Object.assign(() => id, { toString: () => id, toJSON: () => id }) };";

/// Returns the function body that inline code stands for: one line is an expression (after declarations, the last statement is); several lines are a body with its own `return`.
pub fn inline_body(code: &str) -> String {
    let code = code.trim_end();
    if code.contains('\n') {
        return code.to_owned();
    }
    let code = code.trim_start().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    if !declares(code) {
        return format!("return {code}");
    }
    match last_semicolon(code) {
        Some(at) => format!("{}; return {}", &code[..at], code[at + 1..].trim()),
        None => code.to_owned(),
    }
}

fn declares(code: &str) -> bool {
    let words = ["const", "let", "var"].iter();
    words.filter_map(|word| code.strip_prefix(word)).any(|rest| rest.starts_with(char::is_whitespace))
}

/// Whether one line is a body with a `return` of its own: as a statement at its begin, or after the declarations that it begins with.
pub fn returns_itself(code: &str) -> bool {
    let code = code.trim().trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    let last = match last_semicolon(code).filter(|_| declares(code)) {
        Some(at) => code[at + 1..].trim(),
        None => code,
    };
    !code.contains('\n')
        && last
            .strip_prefix("return")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '(', '\t']))
}

/// Makes a function body one of several lines, which workers do not take for an expression.
pub fn as_lines(body: &str) -> String {
    format!("\n{body}")
}

/// The last semicolon outside quotes.
fn last_semicolon(code: &str) -> Option<usize> {
    let (mut quote, mut escaped, mut last) = (None, false, None);
    for (at, c) in code.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, ';') => last = Some(at),
            _ => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_runs_what_the_engine_lacks() {
        for code in [
            "(5).toLocaleString('de')",
            "process.cwd()",
            "new URL(output).host",
            "typeof fetch === 'function'",
        ] {
            assert!(needs_node(code), "{code}");
        }
        for code in ["process.env.HOME", "output.includes('fetch')", "in the process. Then"] {
            assert!(!needs_node(code), "{code}");
        }
    }

    #[test]
    fn one_line_is_an_expression() {
        assert_eq!(inline_body("output.length > 3\n"), "return output.length > 3");
        assert_eq!(inline_body("const a = ';x'; a.length"), "const a = ';x'; return a.length");
        assert_eq!(inline_body("const a = 1;\nreturn a;"), "const a = 1;\nreturn a;");
        assert_eq!(inline_body("let\ta = 1; a > 0;; "), "let\ta = 1; return a > 0");
        assert_eq!(inline_body("constant > 1;"), "return constant > 1");
        // No value, and no mistake of syntax.
        assert_eq!(inline_body("const a = 1"), "const a = 1");
    }

    #[test]
    fn a_return_in_one_line_is_seen() {
        for code in ["const a = 1; return a > 0", "return output", "let a = ';'; return (a);"] {
            assert!(returns_itself(code), "{code}");
        }
        for code in
            ["const a = 1; a > 0", "returned > 1", "output.includes('; return x')", "const a = 1;\nreturn a"]
        {
            assert!(!returns_itself(code), "{code}");
        }
    }

    #[test]
    fn the_id_of_a_provider_is_a_method_where_it_is_called() {
        let call = |code: &str| {
            let context = serde_json::json!({"provider": {"id": "echo"}});
            crate::javascript::call(&inline_function(code), &["".into(), context, serde_json::Value::Null])
                .unwrap()
        };
        assert_eq!(call("context.provider.id() === 'echo' && `${context.provider.id}` === 'echo'"), true);
        assert_eq!(call("context.provider.id"), "echo");
    }
}
