//! The table of results on a terminal.

use serde_json::Value;

use crate::model::Evaluation;
use crate::template::value::to_text;
use crate::terminal::word;

/// Writes the table: variables, then one column for each provider and prompt. All rows are shown.
pub fn print(
    evaluation: &Evaluation,
    cell_length: usize,
    paint: impl Fn(&str, &str) -> String,
    out: &mut String,
) {
    let mut head: Vec<String> = evaluation.vars.clone();
    head.extend(evaluation.columns.iter().map(|column| format!("[{}] {}", column.provider, column.label)));
    let terminal =
        std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or_else(terminal_width);
    let width = (terminal.saturating_sub(head.len() * 3 + 1) / head.len().max(1)).max(10);
    let rule = |left: &str, middle: &str, right: &str| {
        let bars: Vec<String> = head.iter().map(|_| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}\n", bars.join(middle))
    };
    let line = |cells: &[(String, Option<&str>)], out: &mut String| {
        let wrapped: Vec<Vec<String>> = cells.iter().map(|(text, _)| wrap(text, width)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            for (lines, (_, colour)) in wrapped.iter().zip(cells) {
                let text = lines.get(at).map(String::as_str).unwrap_or_default();
                let padding = " ".repeat(width.saturating_sub(text.chars().count()));
                let text = match colour {
                    Some(code) if at == 0 => paint(text, code),
                    _ => text.to_owned(),
                };
                out.push_str(&format!("│ {text}{padding} "));
            }
            out.push_str("│\n");
        }
    };
    out.push_str(&rule("┌", "┬", "┐"));
    line(&head.iter().map(|name| (name.clone(), Some("1"))).collect::<Vec<_>>(), out);
    let mut rows = evaluation.rows.as_slice();
    while let Some(first) = rows.first() {
        let count = rows.iter().take_while(|row| row.test_idx == first.test_idx).count();
        let (group, rest) = rows.split_at(count);
        rows = rest;
        let mut cells: Vec<(String, Option<&str>)> = evaluation
            .vars
            .iter()
            .map(|name| (cut(&first.vars.get(name).map(to_text).unwrap_or_default(), cell_length), None))
            .collect();
        for at in 0..evaluation.columns.len() {
            cells.push(group.iter().find(|row| row.prompt_idx == at).map_or((String::new(), None), |row| {
                let output = row.response.as_ref().and_then(|response| response.output.as_ref());
                let output = output.map(to_text_or_json).unwrap_or_default();
                let text = match &row.error {
                    Some(error) if !output.is_empty() => format!("[{}] {error}\n---\n{output}", word(row)),
                    Some(error) => format!("[{}] {error}", word(row)),
                    None => format!("[{}] {output}", word(row)),
                };
                (cut(&text, cell_length), Some(if row.success { "32" } else { "31" }))
            }));
        }
        out.push_str(&rule("├", "┼", "┤"));
        line(&cells, out);
    }
    out.push_str(&rule("└", "┴", "┘"));
}

/// The width of the terminal in characters.
fn terminal_width() -> usize {
    usize::from(console::Term::stdout().size().1)
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

/// Lines of at most `width` characters, broken between words where possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let mut word: Vec<char> = word.chars().collect();
            let used = line.chars().count();
            if used > 0 && used + 1 + word.len() > width {
                lines.push(std::mem::take(&mut line));
            } else if used > 0 {
                line.push(' ');
            }
            while word.len() > width {
                lines.push(word.drain(..width).collect());
            }
            line.extend(word);
        }
        lines.push(line);
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
    }
}
