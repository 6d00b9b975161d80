//! The table of results on a terminal.

use sandcove_eval::model::{Evaluation, Row};
use sandcove_eval::template::value::shown;

use crate::output::plain;
use crate::terminal;

/// Spaces that are printed for a tab.
const TAB: &str = "    ";

/// Rows of tests whose texts decide how wide the columns are.
const SAMPLE: usize = 25;
/// The narrowest that a column with more text than room becomes.
const MIN_WIDTH: usize = 8;
/// How much more of the room a column of answers gets than one of a variable, if both could fill it.
const ANSWERS: usize = 3;

/// Cells of one line: texts with their colours.
type Cells = Vec<(String, Option<&'static str>)>;

/// The table: variables, then one column for each provider and prompt. It is printed as tests come, so that it never needs to be in memory;
/// the first of them wait until the widths are known.
pub struct Table<'a> {
    evaluation: &'a Evaluation,
    cell_length: usize,
    waiting: Vec<Cells>,
    widths: Vec<usize>,
    paint: &'a dyn Fn(&str, &str) -> String,
}

impl<'a> Table<'a> {
    /// A table as wide as the terminal, with cells of at most `cell_length` characters.
    pub fn new(
        evaluation: &'a Evaluation,
        cell_length: usize,
        paint: &'a dyn Fn(&str, &str) -> String,
    ) -> Self {
        Self { evaluation, cell_length, waiting: Vec::new(), widths: Vec::new(), paint }
    }

    /// The lines above the rows.
    fn head(&self) -> Cells {
        let columns =
            self.evaluation.columns.iter().map(|column| format!("[{}] {}", column.provider, column.label));
        self.evaluation.vars.iter().cloned().chain(columns).map(|name| (name, Some("1"))).collect()
    }

    /// Takes the rows of one test and returns what can be printed.
    pub fn test(&mut self, group: &[Row]) -> String {
        let cells = self.cells(group);
        if !self.widths.is_empty() {
            return self.rule("├", "┼", "┤") + &self.line(&cells);
        }
        self.waiting.push(cells);
        if self.waiting.len() < SAMPLE { String::new() } else { self.begin() }
    }

    /// Returns the lines that have waited, and the one below the rows.
    pub fn foot(&mut self) -> String {
        let waited = if self.widths.is_empty() { self.begin() } else { String::new() };
        waited + &self.rule("└", "┴", "┘")
    }

    fn cells(&self, group: &[Row]) -> Cells {
        let vars = self.evaluation.vars.iter();
        let mut cells: Cells = vars
            .map(|name| {
                (cut(&group[0].vars.get(name).map(shown).unwrap_or_default(), self.cell_length), None)
            })
            .collect();
        for at in 0..self.evaluation.columns.len() {
            cells.push(group.iter().find(|row| row.prompt_idx == at).map_or((String::new(), None), |row| {
                let output = row.response.as_ref().and_then(|response| response.output.as_ref());
                let output = output.map(shown).unwrap_or_default();
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
        cells
    }

    /// Decides the widths, and returns the head and the rows that have waited.
    fn begin(&mut self) -> String {
        let head = self.head();
        let whole =
            std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or_else(terminal_width);
        let longest = |text: &str| text.lines().map(|line| line.replace('\t', TAB).chars().count()).max();
        let wanted = head.iter().enumerate().map(|(at, (name, _))| {
            let is_variable = at < self.evaluation.vars.len();
            let cells =
                self.waiting.iter().filter_map(|cells| longest(&cells[at].0)).max().unwrap_or_default();
            (cells.max(name.chars().count()), if is_variable { 1 } else { ANSWERS })
        });
        let wanted: Vec<_> = wanted.collect();
        self.widths = shares(whole.saturating_sub(wanted.len() * 3 + 1), &wanted);
        let mut out = self.rule("┌", "┬", "┐") + &self.line(&head);
        for cells in std::mem::take(&mut self.waiting) {
            out += &self.rule("├", "┼", "┤");
            out += &self.line(&cells);
        }
        out
    }

    fn rule(&self, left: &str, middle: &str, right: &str) -> String {
        let bars: Vec<_> = self.widths.iter().map(|width| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}\n", bars.join(middle))
    }

    fn line(&self, cells: &Cells) -> String {
        let mut out = String::new();
        let wrapped: Vec<Vec<String>> =
            cells.iter().zip(&self.widths).map(|((text, _), width)| wrap(text, *width)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            for ((lines, (_, colour)), width) in wrapped.iter().zip(cells).zip(&self.widths) {
                let text = lines.get(at).map(String::as_str).unwrap_or_default();
                let padding = " ".repeat(width.saturating_sub(text.chars().count()));
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

/// Divides `room` among columns, each with the characters it could fill and its weight. What some columns do not need is for the others.
fn shares(room: usize, wanted: &[(usize, usize)]) -> Vec<usize> {
    let mut widths: Vec<Option<usize>> = vec![None; wanted.len()];
    let mut left = room;
    loop {
        let open = || widths.iter().zip(wanted).enumerate().filter(|(_, (width, _))| width.is_none());
        let weights: usize = open().map(|(_, (_, (_, weight)))| weight).sum();
        let share = |weight: usize| left * weight / weights.max(1);
        let content = open().find(|(_, (_, (fill, weight)))| *fill <= share(*weight));
        let Some((at, (_, (fill, _)))) = content else {
            let shared = widths.iter().zip(wanted);
            return shared
                .map(|(width, (_, weight))| width.unwrap_or_else(|| share(*weight).max(MIN_WIDTH)))
                .collect();
        };
        widths[at] = Some(*fill);
        left -= fill;
    }
}

/// The width of the terminal in characters.
fn terminal_width() -> usize {
    usize::from(terminal::size().columns)
}

fn cut(text: &str, length: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= length {
        return text;
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
    fn answers_get_what_variables_do_not_need() {
        assert_eq!(shares(60, &[(5, 1), (9, 1), (200, 3)]), [5, 9, 46]);
        assert_eq!(shares(80, &[(90, 1), (200, 3)]), [20, 60]);
        assert_eq!(shares(100, &[(4, 1), (10, 3)]), [4, 10]);
        assert_eq!(shares(10, &[(90, 1), (200, 3)]), [8, 8]);
        assert_eq!(shares(10, &[]), Vec::<usize>::new());
    }

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
