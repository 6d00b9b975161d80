//! Progress of a build: lines on standard error with colours on a terminal, or a JSON object for each event on standard output.

use std::io::IsTerminal;
use std::time::Instant;

use sandcove_wire::api::build::{BuildLogEntry, RequestedBuild};
use sandcove_wire::api::observe::LogLevel;
use serde_json::json;

use super::assemble::Lines;
use crate::output::{self, is_plain, note, out};

/// Prints events of a build.
#[derive(Debug)]
pub struct Printer {
    is_json: bool,
    colour: bool,
    started: Instant,
}

/// The reason why a build failed, and the step at which it did.
#[derive(Debug)]
pub struct Failure<'f> {
    /// Message of the server.
    pub message: &'f str,
    /// Name of the step: `base`, `finalize` or its number.
    pub step: Option<&'f str>,
    /// Line of the Dockerfile and its instruction.
    pub place: Option<(usize, &'f str)>,
}

impl Printer {
    /// A printer for one command.
    pub fn new(is_json: bool) -> Self {
        let no_colour = is_plain();
        let colour = std::io::stderr().is_terminal() && !no_colour;
        Self { is_json, colour, started: Instant::now() }
    }

    /// Prints a warning about a line.
    pub fn warning(&self, file: &str, line: usize, message: &str) {
        if self.is_json {
            out!("{}", json!({ "event": "warning", "file": file, "line": line, "message": message }));
        } else {
            note!("{} {file}:{line}: {message}", self.coloured("33", "warning:"));
        }
    }

    /// Prints what the command does itself.
    pub fn local(&self, message: &str) {
        if self.is_json {
            out!("{}", json!({ "event": "progress", "message": message }));
        } else {
            self.line(&self.coloured("36", message));
        }
    }

    /// Prints an entry of the log of a build; entries for debugging only as JSON.
    pub fn entry(&self, entry: &BuildLogEntry, lines: &Lines) {
        let message = plain(&entry.message);
        if self.is_json {
            let line = entry.step.as_deref().and_then(|step| lines.of(step)).map(|(line, _)| line);
            out!(
                "{}",
                json!({
                    "event": "log", "timestamp": entry.timestamp, "level": entry.level, "message": message, "step": entry.step,
                    "line": line,
                })
            );
            return;
        }
        match entry.level {
            LogLevel::Debug => {}
            LogLevel::Info => self.line(&message),
            LogLevel::Warn => self.line(&self.coloured("33", &message)),
            LogLevel::Error => self.line(&self.coloured("31", &message)),
        }
    }

    /// Prints an entry of a log that is read later, on standard output, with its own time.
    pub fn logged(&self, entry: &BuildLogEntry) {
        if self.is_json {
            self.entry(entry, &Lines::default());
        } else {
            let level = format!("{:?}", entry.level).to_lowercase();
            out!("{:.3} {level:<5} {}", entry.timestamp, plain(&entry.message));
        }
    }

    /// Prints the end of a build that succeeded.
    pub fn ready(&self, build: &RequestedBuild) {
        if self.is_json {
            out!(
                "{}",
                json!({
                    "event": "end", "status": "ready", "templateID": build.template_id, "buildID": build.build_id,
                    "names": build.names, "tags": build.tags,
                })
            );
            return;
        }
        out!("{}", build.template_id);
        let name = build.aliases.first().or(build.names.first()).unwrap_or(&build.template_id);
        note!(
            "{} use it with `Sandbox.create(\"{name}\")` or `sandcove sandbox create {name}`",
            self.coloured("32", "template is ready:")
        );
    }

    /// Prints the end of a build that failed. The error itself is reported as that of the command.
    pub fn failed(&self, build: &RequestedBuild, failure: &Failure<'_>) {
        if self.is_json {
            let (line, instruction) = failure.place.unzip();
            out!(
                "{}",
                json!({
                    "event": "end", "status": "error", "templateID": build.template_id, "buildID": build.build_id,
                    "message": failure.message, "step": failure.step, "line": line, "instruction": instruction,
                })
            );
        }
    }

    fn line(&self, text: &str) {
        note!("{:>6.1}s {text}", self.started.elapsed().as_secs_f64());
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Text without what controls a terminal; of a line that was overwritten, the last state.
pub fn plain(text: &str) -> String {
    let text = text.trim_end_matches(['\r', '\n']);
    output::plain(text.rsplit('\r').next().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_control_sequences_of_builds() {
        for (text, expected) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;x\u{1b}\\link", "link"),
            ("10%\r50%\r100%\r\n", "100%"),
            ("a\tb\u{8}\u{0}", "a\tb"),
            ("\u{1b}[", ""),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }
}
