//! Output of `run`, and its exit status.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandcove_client::traceback;
use sandcove_wire::interpreter::{Event, ExecutionError, ResultData};
use serde_json::{Value, json};

use crate::commands::count;
use crate::output::{self, note, out};

/// IPython's warning after `sys.exit`.
const EXIT_WARNING: &str = "To exit: use 'exit', 'quit', or Ctrl-D.";

/// How output is shown.
#[derive(Debug, Default)]
pub struct Style {
    /// Name of the script: it replaces the cell in tracebacks, and pictures are named after it.
    pub name: String,
    /// Whether values of expressions are printed.
    pub values: bool,
    /// Whether the output is collected into one JSON document.
    pub json: bool,
    /// Directory for pictures.
    pub directory: Option<PathBuf>,
}

/// Prints events as they arrive.
#[derive(Debug)]
pub struct ExecutionPrinter {
    style: Style,
    colour: bool,
    stdout: String,
    stderr: String,
    results: Vec<Value>,
    error: Option<ExecutionError>,
    status: u8,
    has_exited: bool,
    pictures: usize,
    lost_pictures: usize,
    failure: Option<anyhow::Error>,
    closed: bool,
}

impl ExecutionPrinter {
    /// A printer for one execution.
    pub fn new(style: Style) -> Self {
        let no_colour = output::is_plain();
        Self {
            style,
            colour: std::io::stderr().is_terminal() && !no_colour,
            stdout: String::new(),
            stderr: String::new(),
            results: Vec::new(),
            error: None,
            status: 0,
            has_exited: false,
            pictures: 0,
            lost_pictures: 0,
            failure: None,
            closed: false,
        }
    }

    /// Prints an event, and returns false when the reader of the output has gone.
    pub fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Stdout(output) => self.print(output.text.as_bytes()),
            Event::Stderr(output) if self.has_exited && output.text.contains(EXIT_WARNING) => {}
            Event::Stderr(output) => self.print_error(output.text.as_bytes()),
            Event::Result(result) => self.result(&result),
            Event::Error(error) => self.fail(error),
            Event::NumberOfExecutions { .. } | Event::Keepalive | Event::EndOfExecution => {}
        }
        !self.closed
    }

    /// Prints bytes of standard output.
    pub fn print(&mut self, bytes: &[u8]) {
        if self.style.json {
            self.stdout.push_str(&String::from_utf8_lossy(bytes));
        } else {
            self.closed |= output::write(bytes).is_err();
        }
    }

    /// Prints bytes of standard error.
    pub fn print_error(&mut self, bytes: &[u8]) {
        if self.style.json {
            self.stderr.push_str(&String::from_utf8_lossy(bytes));
        } else {
            output::write_error(bytes);
        }
    }

    /// Whether the reader of the output has gone.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sets the exit status of a command.
    pub fn exit(&mut self, status: u8) {
        self.status = status;
    }

    /// Prints the document or hints at the end, and returns the exit status.
    ///
    /// # Errors
    /// When a picture could not be saved.
    pub fn finish(self, timed_out: bool) -> Result<u8> {
        if self.style.json {
            let error = self.error.as_ref().map(|error| {
                let traceback = named(&traceback::with_line_ends(error), &self.style.name);
                json!({ "name": error.name, "value": error.value, "traceback": traceback })
            });
            out!(
                "{}",
                json!({
                    "exitCode": self.status, "timedOut": timed_out, "stdout": self.stdout, "stderr": self.stderr,
                    "results": self.results, "error": error,
                })
            );
        } else if self.lost_pictures > 0 {
            let pictures = count(self.lost_pictures, "picture");
            note!("hint: {pictures} not saved; --out DIR saves pictures");
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.status),
        }
    }

    fn result(&mut self, result: &ResultData) {
        let is_shown = self.style.values || !result.is_main_result;
        let saved = match self.save(result) {
            Ok(saved) => saved,
            Err(error) => {
                self.failure.get_or_insert(error);
                false
            }
        };
        if self.style.json {
            self.results.push(json!(result));
        } else if !saved
            && is_shown
            && let Some(text) = in_words(result)
        {
            self.print(format!("{text}\n").as_bytes());
        }
    }

    /// Saves a picture; true when the result is one.
    fn save(&mut self, result: &ResultData) -> Result<bool> {
        let pictures =
            [("png", &result.png), ("jpeg", &result.jpeg), ("svg", &result.svg), ("pdf", &result.pdf)];
        let found = pictures.iter().find_map(|(kind, value)| Some((*kind, value.as_ref()?.as_str()?)));
        let Some((kind, data)) = found else { return Ok(false) };
        self.pictures += 1;
        let Some(directory) = &self.style.directory else {
            self.lost_pictures += 1;
            return Ok(true);
        };
        let bytes = match kind {
            "svg" => data.as_bytes().to_vec(),
            // Kernels wrap long lines.
            _ => STANDARD
                .decode(data.split_whitespace().collect::<String>())
                .with_context(|| format!("a picture ({kind}) is not base64"))?,
        };
        let stem = Path::new(&self.style.name).file_stem().and_then(|stem| stem.to_str());
        let stem = stem.filter(|stem| !stem.starts_with('<'));
        let extension = if kind == "jpeg" { "jpg" } else { kind };
        let path = directory.join(format!("{}-{}.{extension}", stem.unwrap_or("figure"), self.pictures));
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::File::create(&path)?.write_all(&bytes))
            .with_context(|| format!("failed to save `{}`", path.display()))?;
        note!("saved {}", path.display());
        Ok(true)
    }

    fn fail(&mut self, error: ExecutionError) {
        let number = || error.value.trim().parse::<i64>().ok().map(|status| (status & 0xff) as u8);
        let message = match error.name.as_str() {
            "SystemExit" | "ProcessExit" => {
                self.has_exited = true;
                match error.value.as_str() {
                    "" | "None" => self.status = 0,
                    value => match number() {
                        Some(status) => self.status = status,
                        // `sys.exit("text")` prints the text.
                        None => {
                            self.status = 1;
                            self.print_error(format!("{value}\n").as_bytes());
                        }
                    },
                }
                return;
            }
            "StdinNotImplementedError" => {
                "error: the code asks for input, and `sandcove run` has none\nhint: pass values as arguments, or use \
                 `sandcove sandbox exec`"
                    .to_owned()
            }
            _ => self.in_colour(&named(&traceback::with_line_ends(&error), &self.style.name)),
        };
        self.status = 1;
        if !self.style.json {
            self.print_error(format!("{message}\n").as_bytes());
        }
        self.error = Some(error);
    }

    /// Colours the last line, the error itself, red.
    fn in_colour(&self, text: &str) -> String {
        let start = text.rfind('\n').map_or(0, |at| at + 1);
        match self.colour {
            true => format!("{}\u{1b}[1;31m{}\u{1b}[0m", &text[..start], &text[start..]),
            false => text.to_owned(),
        }
    }
}

/// A traceback with the name of the script in place of its cell.
fn named(text: &str, file: &str) -> String {
    let mut named = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let frame = ["Cell In[", "Cell["].iter().find_map(|cell| {
            let (before, after) = line.split_once(cell)?;
            // Only at the beginning of a frame: source code may have these words anywhere.
            let is_frame = matches!(before.trim(), "" | "at") || before.trim_start().starts_with("at ");
            Some((before, after.split_once(']')?.1)).filter(|_| is_frame)
        });
        match frame {
            Some((before, after)) => named.push_str(&format!("{before}{file}{after}")),
            None => named.push_str(line),
        }
    }
    named
}

/// A result as text; `None` if it has nothing to show.
fn in_words(result: &ResultData) -> Option<String> {
    match &result.text {
        // The value of a JavaScript statement.
        Some(Value::String(text)) if text == "undefined" => return None,
        Some(Value::String(text)) => return Some(text.clone()),
        _ => {}
    }
    let formats = [
        ("html", &result.html),
        ("markdown", &result.markdown),
        ("latex", &result.latex),
        ("json", &result.json),
    ];
    let present: Vec<&str> =
        formats.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| *name).collect();
    (!present.is_empty()).then(|| format!("<{}>", present.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str, value: &str) -> Event {
        Event::Error(ExecutionError { name: name.into(), value: value.into(), traceback: String::new() })
    }

    fn status(events: Vec<Event>) -> u8 {
        let mut printer = ExecutionPrinter::new(Style { json: true, ..Style::default() });
        for event in events {
            printer.take(event);
        }
        printer.status
    }

    #[test]
    fn the_status_is_what_the_code_ended_with() {
        assert_eq!(status(vec![]), 0);
        assert_eq!(status(vec![error("ValueError", "1")]), 1);
        assert_eq!(status(vec![error("SystemExit", "3")]), 3);
        assert_eq!(status(vec![error("SystemExit", "-1")]), 255);
        assert_eq!(status(vec![error("SystemExit", "")]), 0);
        assert_eq!(status(vec![error("SystemExit", "bad")]), 1);
        assert_eq!(status(vec![error("ProcessExit", "4")]), 4);
    }

    #[test]
    fn the_script_is_named_in_its_frames_only() {
        let text = "Cell In[2], line 6\n----> 6 print('Cell In[2]')\nFile /x.py:1, in f()\n";
        assert_eq!(named(text, "a.py"), text.replacen("Cell In[2],", "a.py,", 1));
        assert_eq!(named("E: x\n    at Cell[2]:1:7", "a.js"), "E: x\n    at a.js:1:7");
    }

    #[test]
    fn pictures_are_saved_under_the_name_of_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let style =
            Style { name: "plot.py".into(), directory: Some(dir.path().join("new")), ..Style::default() };
        let mut printer = ExecutionPrinter::new(style);
        let png = Some(Value::String("aGVs\nbG8=\n".into()));
        printer.result(&ResultData { png, ..ResultData::default() });
        assert_eq!(std::fs::read(dir.path().join("new/plot-1.png")).unwrap(), b"hello");
        assert_eq!(printer.finish(false).unwrap(), 0);
    }
}
