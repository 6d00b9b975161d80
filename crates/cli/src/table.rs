//! Plain text tables: columns as wide as their contents.

use serde_json::Value;

/// Formats rows under a header, with two spaces between columns and none at the ends of lines. Cells are what clients and sandboxes chose: what
/// would control a terminal is replaced.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    let mut widths = header.map(|name| name.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let cells: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    std::iter::once(line(header)).chain(body).collect()
}

/// A text in which what would control a terminal is replaced.
fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Formats the details of one thing: a line for each, the name before the value. Names and values are made harmless, as cells are.
pub fn details<N: AsRef<str>>(details: &[(N, String)]) -> String {
    let details: Vec<_> = details.iter().map(|(name, value)| (plain(name.as_ref()), plain(value))).collect();
    let width = details.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    details
        .iter()
        .map(|(name, value)| format!("{}\n", format!("{name:<width$}  {value}").trim_end()))
        .collect()
}

/// The details of a JSON object. Members of objects in it are named by their path, such as `lifecycle.onTimeout`.
pub fn members(object: &Value) -> Vec<(String, String)> {
    fn walk(path: &str, value: &Value, found: &mut Vec<(String, String)>) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (name, value) in members {
                    walk(
                        &if path.is_empty() { name.clone() } else { format!("{path}.{name}") },
                        value,
                        found,
                    );
                }
            }
            Value::String(text) => found.push((path.to_owned(), text.clone())),
            Value::Null => found.push((path.to_owned(), String::new())),
            other => found.push((path.to_owned(), other.to_string())),
        }
    }
    let mut found = Vec::new();
    walk("", object, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_control_no_terminal() {
        let rows = [["\u{1b}]0;evil\u{7}".to_owned(), "a\nb\u{9b}".to_owned()]];
        let text = table(["id", "name"], &rows);
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']) && text.contains("]0;evil"), "{text:?}");
    }

    #[test]
    fn columns_never_touch() {
        let rows = [["a".to_owned(), "x".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(table(["id", "name"], &rows), "id      name\na       x\nlonger\n");
    }

    #[test]
    fn details_are_lines_and_control_no_terminal() {
        let object = json!({ "id": "i", "none": null, "lifecycle": { "onTimeout": "kill", "tags": ["a"] }, "metadata": {}, "\u{1b}": "a\nb" });
        let text = details(&members(&object));
        assert_eq!(
            text,
            "id                   i\nnone\nlifecycle.onTimeout  kill\nlifecycle.tags       [\"a\"]\nmetadata             {}\n\u{fffd}                    a\u{fffd}b\n"
        );
    }
}
