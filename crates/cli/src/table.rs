//! Plain text tables: columns as wide as their contents.

/// Formats rows under a header, with two spaces between columns and none at the ends of lines.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = header.map(|name| name.chars().count());
    for row in rows {
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
    fn columns_never_touch() {
        let rows = [["a".to_owned(), "x".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(table(["id", "name"], &rows), "id      name\na       x\nlonger\n");
    }
}
