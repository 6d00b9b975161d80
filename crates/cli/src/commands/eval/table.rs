//! The table of results on a terminal.

use sandcove_eval::model::{Evaluation, Row};
use sandcove_eval::template::value::to_text;
use serde_json::Value;

use crate::terminal;

/// Spaces that are printed for a tab.
const TAB: &str = "    ";

/// The table: variables, then one column for each provider and prompt. It is printed line by line, so that it never needs to be in memory.
pub struct Table<'a> {
    evaluation: &'a Evaluation,
    cell_length: usize,
    width: usize,
    columns: usize,
    paint: &'a dyn Fn(&str, &str) -> String,
}

impl<'a> Table<'a> {
    /// A table as wide as the terminal, with cells of at most `cell_length` characters.
    pub fn new(
        evaluation: &'a Evaluation,
        cell_length: usize,
        paint: &'a dyn Fn(&str, &str) -> String,
    ) -> Self {
        let columns = evaluation.vars.len() + evaluation.columns.len();
        let whole =
            std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or_else(terminal_width);
        let width = (whole.saturating_sub(columns * 3 + 1) / columns.max(1)).max(10);
        Self { evaluation, cell_length, width, columns, paint }
    }

    /// The lines above the rows.
    pub fn head(&self) -> String {
        let columns =
            self.evaluation.columns.iter().map(|column| format!("[{}] {}", column.provider, column.label));
        let names: Vec<_> =
            self.evaluation.vars.iter().cloned().chain(columns).map(|name| (name, Some("1"))).collect();
        self.rule("┌", "┬", "┐") + &self.line(&names)
    }

    /// The rows of one test.
    pub fn test(&self, group: &[Row]) -> String {
        let vars = self.evaluation.vars.iter();
        let mut cells: Vec<(String, Option<&str>)> = vars
            .map(|name| {
                (cut(&group[0].vars.get(name).map(to_text).unwrap_or_default(), self.cell_length), None)
            })
            .collect();
        for at in 0..self.evaluation.columns.len() {
            cells.push(group.iter().find(|row| row.prompt_idx == at).map_or((String::new(), None), |row| {
                let output = row.response.as_ref().and_then(|response| response.output.as_ref());
                let output = output.map(to_text_or_json).unwrap_or_default();
                let text = match &row.error {
                    Some(error) if !output.is_empty() => {
                        format!("[{}] {error}\n---\n{output}", row.verdict())
                    }
                    Some(error) => format!("[{}] {error}", row.verdict()),
                    None => format!("[{}] {output}", row.verdict()),
                };
                (cut(&text, self.cell_length), Some(if row.success { "32" } else { "31" }))
            }));
        }
        self.rule("├", "┼", "┤") + &self.line(&cells)
    }

    /// The line below the rows.
    pub fn foot(&self) -> String {
        self.rule("└", "┴", "┘")
    }

    fn rule(&self, left: &str, middle: &str, right: &str) -> String {
        let bars = vec!["─".repeat(self.width + 2); self.columns];
        format!("{left}{}{right}\n", bars.join(middle))
    }

    fn line(&self, cells: &[(String, Option<&str>)]) -> String {
        let mut out = String::new();
        let wrapped: Vec<Vec<String>> = cells.iter().map(|(text, _)| wrap(text, self.width)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            for (lines, (_, colour)) in wrapped.iter().zip(cells) {
                let text = lines.get(at).map(String::as_str).unwrap_or_default();
                let padding = " ".repeat(self.width.saturating_sub(text.chars().count()));
                let text = match colour {
                    Some(code) if at == 0 => (self.paint)(text, code),
                    _ => text.to_owned(),
                };
                out.push_str(&format!("│ {text}{padding} "));
            }
            out.push_str("│\n");
        }
        out
    }
}

/// The width of the terminal in characters.
fn terminal_width() -> usize {
    usize::from(terminal::size().columns)
}

fn to_text_or_json(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn cut(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length.saturating_sub(3)).collect::<String>() + "..."
}

/// Lines of at most `width` characters, broken between words where possible. A line of the text keeps its indentation, also where it
/// is broken, so that code stays readable.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let paragraph = paragraph.replace('\t', TAB);
        let bare = paragraph.trim_start_matches(' ');
        let indent = (paragraph.len() - bare.len()).min(width / 2);
        let room = width - indent;
        let mut line: Vec<char> = Vec::new();
        let mut put = |line: &mut Vec<char>| {
            lines.push(format!("{:indent$}{}", "", line.drain(..).collect::<String>()));
        };
        for word in bare.split(' ') {
            let mut word: Vec<char> = word.chars().collect();
            if !line.is_empty() && line.len() + 1 + word.len() > room {
                put(&mut line);
            } else if !line.is_empty() {
                line.push(' ');
            }
            while word.len() > room {
                line.extend(word.drain(..room - line.len()));
                put(&mut line);
            }
            line.extend(word);
        }
        put(&mut line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_wrapped() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(cut("abcdefgh", 6), "abc...");
        assert_eq!(wrap("", 4), Vec::<String>::new());
        assert_eq!(wrap("a\n\nb", 4), ["a", "", "b"]);
    }

    #[test]
    fn code_keeps_its_indentation() {
        let code = "def f(n):\n    if n < 0:\n\traise ValueError('no')\n    return n";
        assert_eq!(
            wrap(code, 40),
            ["def f(n):", "    if n < 0:", "    raise ValueError('no')", "    return n"]
        );
        assert_eq!(wrap("    one two three", 11), ["    one two", "    three"]);
        assert_eq!(wrap("    abcdefghij", 8), ["    abcd", "    efgh", "    ij"]);
        // Half of a narrow cell is left for the text.
        assert_eq!(wrap("          deep", 8), ["    deep"]);
    }
}
