//! JavaScript and Bash, read as their syntax trees. Trees of broken code have holes, so what is there is still looked at.

use tree_sitter::{Node, Parser};

use super::policy::{Finding, Policy};

/// Everything in JavaScript (or TypeScript, as far as it is JavaScript) that `policy` forbids.
pub(super) fn check_javascript(code: &str, policy: &Policy) -> Vec<Finding> {
    walk(&tree_sitter_javascript::LANGUAGE.into(), code, |node, found| javascript(code, policy, node, found))
}

/// Everything in a shell script that `policy` forbids.
pub(super) fn check_bash(code: &str, policy: &Policy) -> Vec<Finding> {
    walk(&tree_sitter_bash::LANGUAGE.into(), code, |node, found| bash(code, policy, node, found))
}

/// Shows every node to `look`, from the first to the last; it says whether to go into it.
fn walk(
    language: &tree_sitter::Language,
    code: &str,
    mut look: impl FnMut(Node<'_>, &mut dyn FnMut(Node<'_>, String)) -> bool,
) -> Vec<Finding> {
    let mut parser = Parser::new();
    let tree = parser.set_language(language).ok().and_then(|()| parser.parse(code, None));
    let Some(tree) = tree else {
        return vec![Finding { line: 1, what: "cannot be parsed".to_owned() }];
    };
    let mut findings: Vec<Finding> = Vec::new();
    let mut found = |node: Node<'_>, what: String| {
        let finding = Finding { line: node.start_position().row + 1, what };
        if findings.last() != Some(&finding) {
            findings.push(finding);
        }
    };
    let mut cursor = tree.walk();
    'tree: loop {
        if look(cursor.node(), &mut found) && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                break 'tree;
            }
        }
    }
    findings
}

fn javascript(code: &str, policy: &Policy, node: Node<'_>, found: &mut dyn FnMut(Node<'_>, String)) -> bool {
    match node.kind() {
        "import_statement" | "export_statement" => {
            if let Some(module) = node.child_by_field_name("source").and_then(|source| string(code, source)) {
                check_module(policy, node, &module, found);
            }
        }
        "call_expression" => {
            let function = node.child_by_field_name("function").map(|function| slice(code, function));
            let first = node.child_by_field_name("arguments").and_then(|all| all.named_child(0));
            let text = first.and_then(|first| string(code, first));
            if matches!(function, Some("require" | "import"))
                && let Some(module) = &text
            {
                check_module(policy, node, module, found);
            }
            if let Some(path) = text
                && policy.denies_path(&path)
            {
                found(node, format!("uses {path}"));
            }
        }
        "member_expression" => {
            let path = slice(code, node).replace("?.", ".");
            let path =
                path.strip_prefix("globalThis.").or_else(|| path.strip_prefix("window.")).unwrap_or(&path);
            if policy.denies_call(path) {
                found(node, format!("calls {path}"));
                return false;
            }
            // `x.constructor.constructor` is `Function` by another name.
            if path.ends_with(".constructor.constructor") && policy.denies_call("Function") {
                found(node, "calls Function".to_owned());
            }
        }
        "subscript_expression" => {
            let object = node.child_by_field_name("object").map(|object| slice(code, object));
            let key = node.child_by_field_name("index").and_then(|index| string(code, index));
            if let (Some("globalThis" | "window" | "global"), Some(key)) = (object, key)
                && policy.denies_call(&key)
            {
                found(node, format!("calls {key}"));
            }
        }
        "identifier" => {
            let name = slice(code, node);
            let declared = node.parent().is_some_and(|parent| {
                matches!(parent.kind(), "function_declaration" | "class_declaration" | "formal_parameters")
            });
            if !declared && policy.denies_call(name) {
                found(node, format!("calls {name}"));
            }
        }
        _ => {}
    }
    true
}

fn check_module(policy: &Policy, node: Node<'_>, module: &str, found: &mut dyn FnMut(Node<'_>, String)) {
    let name = module.strip_prefix("node:").unwrap_or(module);
    if policy.denies_import(name) {
        found(node, format!("imports {name}"));
    }
}

/// The text of a literal, or of literals added up.
fn string(code: &str, node: Node<'_>) -> Option<String> {
    match node.kind() {
        "string" | "template_string"
            if node.named_children(&mut node.walk()).all(|part| part.kind() == "string_fragment") =>
        {
            let text = slice(code, node);
            Some(text.get(1..text.len().checked_sub(1)?)?.to_owned())
        }
        "binary_expression" => {
            let side = |name| node.child_by_field_name(name).and_then(|side| string(code, side));
            let operator = node.child_by_field_name("operator").map(|operator| slice(code, operator));
            (operator == Some("+")).then_some(())?;
            Some(side("left")? + &side("right")?)
        }
        "parenthesized_expression" => string(code, node.named_child(0)?),
        _ => None,
    }
}

fn bash(code: &str, policy: &Policy, node: Node<'_>, found: &mut dyn FnMut(Node<'_>, String)) -> bool {
    match node.kind() {
        "command" => {
            let name = node.child_by_field_name("name").map(|name| unquoted(slice(code, name)));
            let arguments: Vec<String> = node
                .children_by_field_name("argument", &mut node.walk())
                .map(|argument| unquoted(slice(code, argument)))
                .collect();
            // What runs another command is looked through.
            let words = name.iter().chain(&arguments);
            let runs = ["command", "builtin", "exec", "env", "nohup", "time", "xargs", "busybox", "timeout"];
            let shown: Vec<&String> = words.skip_while(|word| runs.contains(&word.as_str())).collect();
            let Some(program) = shown.first() else { return true };
            let program = program.rsplit('/').next().unwrap_or(program);
            if policy.denies_call(program) {
                found(node, format!("calls {program}"));
            }
            let recursive = arguments
                .iter()
                .any(|a| a.starts_with('-') && !a.starts_with("--") && a.contains(['r', 'R']));
            let whole =
                arguments.iter().any(|a| matches!(a.as_str(), "/" | "/*" | "~" | "~/" | "$HOME" | "." | "*"));
            if program == "rm" && recursive && whole {
                found(node, "calls rm on everything".to_owned());
            }
        }
        // `f() { f | f & }` doubles itself for ever.
        "function_definition" => {
            let name = node.child_by_field_name("name").map(|name| slice(code, name));
            let body = node.child_by_field_name("body").map(|body| slice(code, body));
            if let (Some(name), Some(body)) = (name, body)
                && body.contains('&')
                && body.split(|c: char| c.is_whitespace() || "{}|&;()".contains(c)).any(|word| word == name)
            {
                found(node, "starts itself again and again".to_owned());
            }
        }
        "word" | "string" | "raw_string" | "concatenation" => {
            let path = unquoted(slice(code, node));
            if policy.denies_path(&path) {
                found(node, format!("uses {path}"));
            }
        }
        _ => {}
    }
    true
}

fn unquoted(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect()
}

fn slice<'c>(code: &'c str, node: Node<'_>) -> &'c str {
    code.get(node.byte_range()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::policy::PolicySettings;

    fn findings(language: &str, code: &str) -> Vec<String> {
        let policy = PolicySettings::default().for_language(language);
        let found =
            if language == "bash" { check_bash(code, &policy) } else { check_javascript(code, &policy) };
        found.into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn javascript_spellings_are_found() {
        for (code, found) in [
            ("const { exec } = require('child_process')", "1: imports child_process"),
            ("require('child' + '_process').execSync('ls')", "1: imports child_process"),
            ("\nimport { execSync } from 'node:child_process'", "2: imports child_process"),
            ("await import('net')", "1: imports net"),
            ("eval('1')", "1: calls eval"),
            ("const f = eval; f('1')", "1: calls eval"),
            ("new Function('return 1')()", "1: calls Function"),
            ("[].constructor.constructor('return 1')()", "1: calls Function"),
            ("globalThis.fetch('x')", "1: calls fetch"),
            ("globalThis['fetch']('x')", "1: calls fetch"),
            ("fetch('http://example.org')", "1: calls fetch"),
            ("require('fs').readFileSync('/etc/passwd')", "1: uses /etc/passwd"),
        ] {
            let all = findings("javascript", code);
            assert!(all.iter().any(|one| one == found), "{code:?}: {all:?}");
        }
        for code in
            ["console.log('eval(1) fetch')", "function fetchAll(x) { return x.map(String) }", "obj.eval = 1"]
        {
            assert_eq!(findings("javascript", code), Vec::<String>::new(), "{code:?}");
        }
    }

    #[test]
    fn shell_commands_are_found() {
        for (code, found) in [
            ("curl http://example.org", "1: calls curl"),
            ("echo hi | /usr/bin/nc 10.0.0.1 80", "1: calls nc"),
            ("x=$(wget -O- example.org)", "1: calls wget"),
            ("rm -rf /", "1: calls rm on everything"),
            ("echo a\nrm -r -f \"$HOME\"", "2: calls rm on everything"),
            (":(){ :|:& };:", "1: starts itself again and again"),
            ("command eval \"$x\"", "1: calls eval"),
            ("c\\url example.org", "1: calls curl"),
            ("cat /etc/shadow", "1: uses /etc/shadow"),
            ("exec 3<>/dev/tcp/10.0.0.1/80", "1: uses /dev/tcp/10.0.0.1/80"),
        ] {
            let all = findings("bash", code);
            assert!(all.iter().any(|one| one == found), "{code:?}: {all:?}");
        }
        for code in
            ["echo 'curl is a program'", "rm -rf build", "add() { echo $(( $1 + $2 )); }", "f() { g & }"]
        {
            assert_eq!(findings("bash", code), Vec::<String>::new(), "{code:?}");
        }
    }
}
