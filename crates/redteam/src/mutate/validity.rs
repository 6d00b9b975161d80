//! Whether a text is a program, for tests.

use crate::probe::Language;

/// Whether a parser of the language accepts a program.
pub fn holds(language: Language, code: &str) -> bool {
    match language {
        Language::Python => ruff_python_parser::parse_module(code).is_ok(),
        Language::JavaScript => accepted(&tree_sitter_javascript::LANGUAGE.into(), code),
        // The grammar of the highlighter does not know all of the language.
        Language::Bash => checked_by_bash(code),
        Language::Text => true,
    }
}

fn accepted(language: &tree_sitter::Language, code: &str) -> bool {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(language).unwrap();
    !parser.parse(code, None).unwrap().root_node().has_error()
}

fn checked_by_bash(code: &str) -> bool {
    let mut bash = std::process::Command::new("bash");
    bash.args(["-n", "-c", code]).status().unwrap().success()
}
