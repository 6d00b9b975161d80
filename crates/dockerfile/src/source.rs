//! The text of a Dockerfile as instructions: parser directives, comments, continuation lines, flags, JSON forms and heredocs
//! (Dockerfile reference, "Format"). What the instructions mean is decided in `plan`.

use crate::error::{Error, Notice, Result};
use crate::heredoc::{self, Heredoc};

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Keyword in uppercase.
    pub name: String,
    /// The instruction as one line, without its heredocs.
    pub text: String,
    /// Flags such as `--chown=user:group`, without quotes.
    pub flags: Vec<String>,
    /// Arguments as they are written. `ENV` and `LABEL` have `name`, `value`, and `=` or nothing for each variable.
    pub args: Vec<String>,
    /// Whether the arguments are a JSON array.
    pub is_json: bool,
    /// Heredocs, in order.
    pub heredocs: Vec<Heredoc>,
    /// First line, from 1.
    pub line: usize,
    /// Last line.
    pub end: usize,
}

/// The instructions of a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// The escape character, `\` unless the directive `escape` says otherwise.
    pub escape: char,
    /// Warnings about the form of the text.
    pub notices: Vec<Notice>,
}

/// Reads the text of a Dockerfile.
///
/// # Errors
/// An error with its line, if the text is no Dockerfile.
pub fn parse(text: &str) -> Result<Dockerfile> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n').zip(1..);
    let mut directives = Directives { escape: '\\', seen: Vec::new(), is_over: false };
    let mut instructions = Vec::new();
    let mut notices = Vec::new();
    while let Some((raw, line)) = lines.next() {
        let first = raw.trim_end_matches(['\r', '\n']).trim_start();
        directives.read(first).map_err(|error| error.or_at(line))?;
        let first = if first.starts_with('#') { "" } else { first };
        let (part, mut continues) = directives.continuation(first);
        let mut whole = part.to_owned();
        let mut end = line;
        if !continues && whole.is_empty() {
            continue;
        }
        let mut has_empty = false;
        while continues {
            let Some((raw, number)) = lines.next() else { break };
            end = number;
            let next = raw.trim_end_matches(['\r', '\n']);
            if next.trim_start().starts_with('#') {
                continue;
            }
            if next.trim_start().is_empty() {
                has_empty = true;
                continue;
            }
            let (part, more) = directives.continuation(next);
            whole.push_str(part);
            continues = more;
        }
        if has_empty {
            let message = "an empty line is within an instruction that continues; remove it".to_owned();
            notices.push(Notice { line, message });
        }
        if whole.trim().is_empty() {
            return Err(Error::at(line, "an instruction is missing before the continued line"));
        }
        let mut instruction =
            instruction(&whole, line, directives.escape).map_err(|error| error.or_at(line))?;
        if takes_heredocs(&instruction) {
            let mut docs = heredoc::begun_by(&whole);
            for doc in &mut docs {
                end = fill(doc, &mut lines).ok_or_else(|| {
                    Error::at(line, format!("the heredoc `{0}` has no end", doc.name))
                        .hint(format!("end it with a line that has only `{}`", doc.name))
                })?;
            }
            instruction.heredocs = docs;
        }
        instruction.end = end;
        instructions.push(instruction);
    }
    Ok(Dockerfile { instructions, escape: directives.escape, notices })
}

fn takes_heredocs(instruction: &Instruction) -> bool {
    matches!(instruction.name.as_str(), "ADD" | "COPY" | "RUN")
        && !instruction.is_json
        && instruction.text.contains("<<")
}

/// Reads the lines of a heredoc, and returns the number of its last line.
fn fill<'t>(doc: &mut Heredoc, lines: &mut impl Iterator<Item = (&'t str, usize)>) -> Option<usize> {
    for (raw, number) in lines {
        let line = raw.trim_end_matches(['\r', '\n']);
        let line = if doc.chomp { line.trim_start_matches('\t') } else { line };
        if line == doc.name {
            return Some(number);
        }
        doc.content.push_str(raw);
    }
    None
}

/// The parser directives at the top of the file.
struct Directives {
    escape: char,
    seen: Vec<String>,
    is_over: bool,
}

impl Directives {
    fn read(&mut self, line: &str) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        let directive = line.strip_prefix('#').and_then(|rest| rest.split_once('='));
        let name = directive.map(|(name, _)| name.trim().to_ascii_lowercase()).unwrap_or_default();
        let value = directive.map(|(_, value)| value.trim()).unwrap_or_default();
        if value.is_empty() || !matches!(name.as_str(), "syntax" | "escape" | "check") {
            self.is_over = true;
            return Ok(());
        }
        if self.seen.contains(&name) {
            return Err(Error::new(format!("the parser directive `{name}` is duplicated")));
        }
        if name == "escape" {
            self.escape = match value {
                "\\" => '\\',
                "`" => '`',
                other => {
                    let message =
                        format!("invalid escape character `{other}`; use a backslash or a backtick");
                    return Err(Error::new(message));
                }
            };
        }
        self.seen.push(name);
        Ok(())
    }

    /// Cuts the escape character from the end of a line that continues on the next one.
    fn continuation<'l>(&self, line: &'l str) -> (&'l str, bool) {
        let trimmed = line.trim_end_matches([' ', '\t']);
        match trimmed.strip_suffix(self.escape) {
            Some(rest) if !rest.ends_with(self.escape) => (rest, true),
            _ => (line, false),
        }
    }
}

fn instruction(whole: &str, line: usize, escape: char) -> Result<Instruction> {
    let text = whole.trim();
    let (keyword, rest) = text.split_once(is_separator).unwrap_or((text, ""));
    let name = keyword.to_ascii_uppercase();
    let (flags, rest) = flags(rest.trim_start(), escape);
    let rest = rest.trim();
    let list = |args: Vec<String>| (args, false);
    let (args, is_json) = match name.as_str() {
        "RUN" | "CMD" | "ENTRYPOINT" | "SHELL" => match json(rest)? {
            Some(args) => (args, true),
            None => list(whole_text(rest)),
        },
        "ADD" | "COPY" => match json(rest)? {
            Some(args) => (args, true),
            None => list(words(rest, escape)),
        },
        "VOLUME" => match json(rest)? {
            Some(args) => (args, true),
            None => list(rest.split_whitespace().map(str::to_owned).collect()),
        },
        "ARG" => list(words(rest, escape)),
        "ENV" | "LABEL" => list(assignments(&name, rest, escape)?),
        "EXPOSE" | "FROM" => list(rest.split_whitespace().map(str::to_owned).collect()),
        "HEALTHCHECK" | "MAINTAINER" | "ONBUILD" | "STOPSIGNAL" | "USER" | "WORKDIR" => {
            list(whole_text(rest))
        }
        _ => {
            return Err(Error::new(format!("unknown instruction `{keyword}`"))
                .hint("instructions begin with a keyword such as FROM, RUN or COPY; end a line with `\\` to continue it"));
        }
    };
    let text = text.to_owned();
    Ok(Instruction { name, text, flags, args, is_json, heredocs: Vec::new(), line, end: line })
}

fn is_separator(c: char) -> bool {
    matches!(c, '\t' | '\x0b' | '\x0c' | '\r' | ' ')
}

fn whole_text(rest: &str) -> Vec<String> {
    Some(rest).filter(|rest| !rest.is_empty()).map(str::to_owned).into_iter().collect()
}

/// Reads a JSON array of strings; `None` for anything else, which is the shell form.
fn json(rest: &str) -> Result<Option<Vec<String>>> {
    if !rest.starts_with('[') {
        return Ok(None);
    }
    let Ok(values) = serde_json::from_str::<Vec<serde_json::Value>>(rest) else { return Ok(None) };
    let strings = values.into_iter().map(|value| match value {
        serde_json::Value::String(text) => Ok(text),
        other => Err(Error::new(format!("`{other}` in the JSON array is not a string; add quotes"))),
    });
    strings.collect::<Result<_>>().map(Some)
}

/// Splits a text into words; quotes and escapes stay in them, for the lexer.
fn words(rest: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match quote {
            None if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ if c == escape && quote != Some('\'') => {
                // An escape character at the end of the line escapes nothing.
                let Some(escaped) = chars.next() else { break };
                word.push(c);
                word.push(escaped);
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The triples of `ENV` and `LABEL`: `name=value …`, or the old form `name value`.
fn assignments(instruction: &str, rest: &str, escape: char) -> Result<Vec<String>> {
    let words = words(rest, escape);
    let Some(first) = words.first() else { return Ok(Vec::new()) };
    if !first.contains('=') {
        let Some((name, value)) = rest.split_once(is_separator) else {
            return Err(Error::new(format!("{instruction} {rest} has no value"))
                .hint(format!("write `{instruction} {rest}=value`")));
        };
        return Ok(vec![name.to_owned(), value.trim_start().to_owned(), String::new()]);
    }
    let mut triples = Vec::with_capacity(words.len() * 3);
    for word in &words {
        let Some((name, value)) = word.split_once('=') else {
            return Err(Error::new(format!("`{word}` is not NAME=VALUE"))
                .hint("put quotes around a value that has spaces"));
        };
        triples.extend([name.to_owned(), value.to_owned(), "=".to_owned()]);
    }
    Ok(triples)
}

/// Splits the flags off the beginning of the arguments, and removes their quotes and escapes.
fn flags(line: &str, escape: char) -> (Vec<String>, &str) {
    let mut flags = Vec::new();
    let mut rest = line;
    while rest.starts_with("--") {
        let mut flag = String::new();
        let mut quote = None;
        let mut chars = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match quote {
                None if c.is_whitespace() => {
                    end = at;
                    break;
                }
                None if c == '\'' || c == '"' => quote = Some(c),
                Some(open) if c == open => quote = None,
                _ if c == escape => flag.extend(chars.next().map(|(_, escaped)| escaped)),
                _ => flag.push(c),
            }
        }
        rest = rest[end..].trim_start();
        if flag == "--" {
            break;
        }
        flags.push(flag);
    }
    (flags, rest)
}

#[cfg(test)]
mod tests;
