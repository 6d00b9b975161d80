//! Plain text tables: columns as wide as their contents.

/// Formats rows under a header, with two spaces between columns and none at the ends of lines. Cells are what clients and sandboxes chose: what
/// would control a terminal is replaced.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let plain = |cell: &String| cell.replace(char::is_control, "\u{fffd}");
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(plain)).collect();
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

#[cfg(test)]
mod tests {
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
}
