//! Taking code out of an answer.

/// A piece of code and what its author called its language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) code: String,
    /// The word after the fence, in lower case; empty when there was none.
    pub(super) tag: String,
}

/// The part of an answer that has the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Source {
    /// A fence; without any, the answer from the function's definition on; without that, nothing.
    #[default]
    Auto,
    /// The first fence only.
    Fence,
    /// The whole answer.
    Whole,
}

/// The code of an answer: the fence that defines `function` if one does, else the first that is tagged for `language`, else
/// the first.
pub(super) fn extract(
    answer: &str,
    source: Source,
    language: Option<&str>,
    function: Option<&str>,
) -> Option<Block> {
    if source == Source::Whole {
        return (!answer.trim().is_empty()).then(|| Block { code: answer.to_owned(), tag: String::new() });
    }
    let blocks = fences(answer);
    let defining = function.and_then(|name| blocks.iter().find(|block| defines(&block.code, name).is_some()));
    let tagged =
        language.and_then(|wanted| blocks.iter().find(|block| canonical(&block.tag) == Some(wanted)));
    if let Some(block) = defining.or(tagged).or(blocks.first()) {
        return Some(block.clone());
    }
    if source == Source::Fence {
        return None;
    }
    let code = match function {
        Some(name) => &answer[defines(answer, name)?..],
        None => answer.lines().any(looks_like_code).then_some(answer)?,
    };
    Some(Block { code: code.to_owned(), tag: String::new() })
}

/// The text of every fence.
pub(crate) fn fenced_blocks(answer: &str) -> Vec<String> {
    fences(answer).into_iter().map(|block| block.code).collect()
}

/// The interpreter's name for a language, from any of its usual names.
pub(super) fn canonical(tag: &str) -> Option<&'static str> {
    Some(match tag.to_ascii_lowercase().as_str() {
        "python" | "py" | "python3" => "python",
        "javascript" | "js" | "node" | "mjs" | "cjs" => "javascript",
        "typescript" | "ts" => "typescript",
        "bash" | "sh" | "shell" | "zsh" => "bash",
        "r" => "r",
        "java" => "java",
        _ => return None,
    })
}

/// Fenced blocks with backticks or tildes. A fence that is never closed goes to the end: answers are cut off.
fn fences(answer: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, usize, Block)> = None;
    for line in answer.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let mark: String = trimmed.chars().take_while(|c| *c == '`' || *c == '~').collect();
        let rest = trimmed[mark.len()..].trim();
        let is_fence = mark.len() >= 3 && mark.chars().all(|c| mark.starts_with(c));
        match &mut open {
            None if is_fence && !rest.contains('`') => {
                let tag = rest.split([' ', '{', ',', ':']).next().unwrap_or_default().to_ascii_lowercase();
                open = Some((mark, indent, Block { code: String::new(), tag }));
            }
            Some((opened, _, _)) if is_fence && rest.is_empty() && mark.starts_with(opened.as_str()) => {
                blocks.extend(open.take().map(|(_, _, block)| block));
            }
            Some((_, indent, block)) => {
                // A fence inside a list is indented, and its lines with it.
                let extra = line.len() - line.trim_start_matches(' ').len();
                block.code.push_str(&line[extra.min(*indent)..]);
            }
            None => {}
        }
    }
    blocks.extend(open.map(|(_, _, block)| block));
    blocks.retain(|block| !block.code.trim().is_empty());
    blocks
}

/// Returns where the definition of a function begins.
fn defines(code: &str, name: &str) -> Option<usize> {
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let mut words = line.trim_start();
        for skipped in ["export ", "default ", "async "] {
            words = words.strip_prefix(skipped).unwrap_or(words).trim_start();
        }
        let rest = ["def ", "function ", "function* ", "const ", "let ", "var ", "class "]
            .iter()
            .find_map(|keyword| words.strip_prefix(keyword))
            .unwrap_or(words)
            .trim_start();
        let keyword_used = rest.len() < words.len();
        if let Some(after) = rest.strip_prefix(name) {
            let after = after.trim_start();
            // Bash and R name functions without a keyword before.
            let bare = after.starts_with("()") || after.starts_with("<- function");
            let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            if ends && (bare || keyword_used) {
                return Some(at + line.len() - line.trim_start().len());
            }
        }
        at += line.len();
    }
    None
}

fn looks_like_code(line: &str) -> bool {
    let line = line.trim_start();
    const STARTS: [&str; 12] = [
        "def ",
        "class ",
        "import ",
        "from ",
        "function ",
        "const ",
        "let ",
        "var ",
        "print(",
        "console.log(",
        "#!",
        "async ",
    ];
    STARTS.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(answer: &str, function: Option<&str>) -> Option<String> {
        extract(answer, Source::Auto, Some("python"), function).map(|block| block.code)
    }

    #[test]
    fn the_fence_that_defines_the_function_wins() {
        let answer = "Install:\n```bash\npip install x\n```\nThen:\n```python\nimport x\n```\n```py\ndef add(a, b):\n    return a + b\n```\nDone";
        assert_eq!(code(answer, Some("add")).unwrap_or_default(), "def add(a, b):\n    return a + b\n");
        assert_eq!(code(answer, Some("sub")).unwrap_or_default(), "import x\n");
        assert_eq!(
            extract(answer, Source::Fence, None, None).map(|block| block.tag),
            Some("bash".to_owned())
        );
    }

    #[test]
    fn odd_fences_are_understood() {
        assert_eq!(code("~~~Python title=x\nx = 1\n~~~", None).unwrap_or_default(), "x = 1\n");
        assert_eq!(code("````md\n```\ninner\n```\n````", None).unwrap_or_default(), "```\ninner\n```\n");
        assert_eq!(
            code("- so:\n  ```python\n  if a:\n      b()\n  ```", None).unwrap_or_default(),
            "if a:\n    b()\n"
        );
        assert_eq!(code("```python\ndef cut(off", None).unwrap_or_default(), "def cut(off");
        assert_eq!(code("```python\n\n```\n", None), None);
    }

    #[test]
    fn without_a_fence_the_function_is_looked_for() {
        assert_eq!(
            code("Sure.\n\ndef add(a):\n    return a\n", Some("add")).unwrap_or_default(),
            "def add(a):\n    return a\n"
        );
        assert_eq!(code("I would not.", Some("add")), None);
        assert_eq!(code("I would not.", None), None);
        assert_eq!(code("def addition(a): pass", Some("add")), None);
        assert_eq!(
            code("x = 1\nconst add = (a) => a", Some("add")).unwrap_or_default(),
            "const add = (a) => a"
        );
        assert_eq!(code("add() {\n echo 1\n}", Some("add")).unwrap_or_default(), "add() {\n echo 1\n}");
    }
}
