//! Readable tracebacks. On the wire the lines that a kernel sends as a list are joined without separators (contract: interpreter,
//! section 4), so that some line ends are missing.

use sandcove_wire::interpreter::ExecutionError;

/// End of the first line of a Python traceback.
const HEADER: &str = "Traceback (most recent call last)";
/// Start of a frame in a JavaScript traceback.
const JAVASCRIPT_FRAME: &str = "    at ";

/// Restores the line ends of a traceback; without a traceback, returns name and message. The text does not end with a line end.
pub fn with_line_ends(error: &ExecutionError) -> String {
    let text = error.traceback.trim_end();
    let title = match (error.name.as_str(), error.value.as_str()) {
        ("", value) => value.to_owned(),
        (name, "") => name.to_owned(),
        (name, value) => format!("{name}: {value}"),
    };
    if text.is_empty() {
        return title;
    }
    if let Some(frames) = text.strip_prefix(&title)
        && frames.starts_with(JAVASCRIPT_FRAME)
    {
        return title
            + &frames.replace(JAVASCRIPT_FRAME, &format!("\n{JAVASCRIPT_FRAME}")).replace("\n\n", "\n");
    }
    let mut lines = String::with_capacity(text.len() + 16);
    let rule = text.bytes().take_while(|byte| *byte == b'-').count();
    let mut rest = text;
    if rule > 3 {
        lines.push_str(&text[..rule]);
        rest = text[rule..].trim_start_matches('\n');
        lines.push('\n');
    }
    while let Some(at) = rest.find(HEADER) {
        let (line, after) = rest.split_at(at + HEADER.len());
        lines.push_str(line);
        rest = after;
        // A line of source code with these words continues after them.
        if rest.starts_with("Cell In[") || rest.starts_with("File ") || rest.starts_with("  ") {
            lines.push('\n');
        }
    }
    lines.push_str(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, value: &str, traceback: &str) -> String {
        let error = ExecutionError { name: name.into(), value: value.into(), traceback: traceback.into() };
        with_line_ends(&error)
    }

    #[test]
    fn a_python_traceback_has_its_lines_again() {
        let header = "ZeroDivisionError                         Traceback (most recent call last)";
        let wire = format!(
            "{}{header}Cell In[1], line 1\n----> 1 1/0\nZeroDivisionError: division by zero",
            "-".repeat(75)
        );
        let lines = shown("ZeroDivisionError", "division by zero", &wire);
        let expected = format!(
            "{}\n{header}\nCell In[1], line 1\n----> 1 1/0\nZeroDivisionError: division by zero",
            "-".repeat(75)
        );
        assert_eq!(lines, expected);
        assert_eq!(shown("ZeroDivisionError", "division by zero", &expected), expected, "done once only");
    }

    #[test]
    fn chained_tracebacks_have_a_header_each() {
        let wire = "-----A   Traceback (most recent call last)Cell In[1], line 1\nA: a\nB   Traceback (most recent call last)File \
                    x.py:1\nB: b";
        let lines = shown("B", "b", wire);
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "-----",
                "A   Traceback (most recent call last)",
                "Cell In[1], line 1",
                "A: a",
                "B   Traceback (most recent call last)",
                "File x.py:1",
                "B: b"
            ]
        );
    }

    #[test]
    fn frames_of_javascript_have_lines() {
        let lines = shown("TypeError", "no", "TypeError: no    at f (Cell[2]:1:6)    at Cell[2]:3:1");
        assert_eq!(lines, "TypeError: no\n    at f (Cell[2]:1:6)\n    at Cell[2]:3:1");
        let whole = "Error: a\n    at f\n    at g";
        assert_eq!(shown("Error", "a", whole), whole);
    }

    #[test]
    fn an_error_without_traceback_is_its_name_and_message() {
        assert_eq!(shown("E", "m", ""), "E: m");
        assert_eq!(shown("E", "", ""), "E");
        assert_eq!(shown("", "2", ""), "2");
    }
}
