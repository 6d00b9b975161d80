//! The Markdown around code: what is handed to a check as a model's answer.

/// The usual fence.
pub const FENCE: &str = "fence";

/// The ways to wrap code, by name.
pub const WRAPPERS: &[&str] = &[FENCE, "tilde-fence", "no-fence", "wrong-tag", "long-fence", "patch"];

/// Wraps a program into an answer; none if there is no such way.
pub fn wrap(name: &str, language: &str, code: &str) -> Option<String> {
    let code = code.trim_end();
    Some(match name {
        FENCE => format!("```{language}\n{code}\n```\n"),
        "tilde-fence" => format!("~~~{language}\n{code}\n~~~\n"),
        "no-fence" => format!("{code}\n"),
        "wrong-tag" => format!("```text\n{code}\n```\n"),
        "long-fence" => format!("Here is the function:\n\n`````{}\n{code}\n`````\n", language.to_uppercase()),
        "patch" => patch(code),
        _ => return None,
    })
}

/// A diff that adds the program.
fn patch(code: &str) -> String {
    let lines: Vec<String> = code.lines().map(|line| format!("+{line}")).collect();
    let count = lines.len();
    format!("```diff\n--- /dev/null\n+++ b/solution.py\n@@ -0,0 +1,{count} @@\n{}\n```\n", lines.join("\n"))
}
