//! Cuts a template into text, tags and the tokens inside tags.

use super::TemplateError;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Text(String),
    /// The delimiter `{{`.
    PrintStart,
    /// The delimiter `}}`.
    PrintEnd,
    /// The delimiter `{%`.
    BlockStart,
    /// The delimiter `%}`.
    BlockEnd,
    Str(String),
    Num(f64),
    Name(String),
    Regex(String, String),
    Op(&'static str),
    End,
}

pub struct Spot {
    pub token: Token,
    pub line: usize,
}

const OPERATORS: &[&str] = &[
    "===", "!==", "==", "!=", "<=", ">=", "//", "**", "<", ">", "=", "+", "-", "*", "/", "%", "(", ")", "[",
    "]", "{", "}", ".", ",", ":", "|", "~",
];

/// Returns all tokens, the last of them `End`.
pub fn tokens(source: &str) -> Result<Vec<Spot>, TemplateError> {
    let mut lexer = Lexer { source, at: 0, line: 1, out: Vec::new() };
    lexer.run()?;
    Ok(lexer.out)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    out: Vec<Spot>,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) -> &'s str {
        let taken = &self.source[self.at..self.at + bytes];
        self.line += taken.bytes().filter(|b| *b == b'\n').count();
        self.at += bytes;
        taken
    }

    fn push(&mut self, token: Token) {
        self.out.push(Spot { token, line: self.line });
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError { message: message.into(), line: self.line }
    }

    fn run(&mut self) -> Result<(), TemplateError> {
        let mut trim_next = false;
        while self.at < self.source.len() {
            let rest = self.rest();
            let next = rest
                .match_indices('{')
                .find(|(at, _)| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')));
            let text = self.advance(next.map_or(rest.len(), |(at, _)| at));
            let mut text = if trim_next { text.trim_start() } else { text };
            let rest = self.rest();
            if rest.as_bytes().get(2) == Some(&b'-') {
                text = text.trim_end();
            }
            if !text.is_empty() {
                self.push(Token::Text(text.to_owned()));
            }
            if rest.is_empty() {
                break;
            }
            if rest.starts_with("{#") {
                let Some(end) = rest.find("#}") else {
                    return Err(self.error("expected end of comment, got end of file"));
                };
                trim_next = rest.as_bytes()[end - 1] == b'-' && end > 2;
                self.advance(end + 2);
                continue;
            }
            let dash = usize::from(rest.as_bytes().get(2) == Some(&b'-'));
            if rest.starts_with("{%") {
                if let Some(trim) = self.raw(rest)? {
                    trim_next = trim;
                    continue;
                }
                self.push(Token::BlockStart);
                self.advance(2 + dash);
                trim_next = self.inside("%}", Token::BlockEnd)?;
            } else {
                self.push(Token::PrintStart);
                self.advance(2 + dash);
                trim_next = self.inside("}}", Token::PrintEnd)?;
            }
        }
        self.push(Token::End);
        Ok(())
    }

    /// `{% raw %}` and `{% verbatim %}`: everything up to the matching end is text.
    fn raw(&mut self, rest: &'s str) -> Result<Option<bool>, TemplateError> {
        let Some((name, length)) = tag_word(rest) else { return Ok(None) };
        if name != "raw" && name != "verbatim" {
            return Ok(None);
        }
        self.advance(length);
        let body = self.rest();
        let (mut depth, mut at) = (1, 0);
        while let Some(found) = body[at..].find("{%") {
            let start = at + found;
            at = start + 2;
            let Some((word, length)) = tag_word(&body[start..]) else { continue };
            if word == name {
                depth += 1;
            } else if word.strip_prefix("end") == Some(name) {
                depth -= 1;
            }
            if depth == 0 {
                let mut text = &body[..start];
                if body.as_bytes().get(start + 2) == Some(&b'-') {
                    text = text.trim_end();
                }
                self.push(Token::Text(text.to_owned()));
                self.advance(start + length);
                return Ok(Some(body[..start + length].ends_with("-%}")));
            }
        }
        Err(self.error(format!("expected `{{% end{name} %}}`, got end of file")))
    }

    /// Tokens up to the end of the tag; true if the text after it loses its leading white space.
    fn inside(&mut self, end: &str, end_token: Token) -> Result<bool, TemplateError> {
        loop {
            let blank = self.rest().len() - self.rest().trim_start().len();
            self.advance(blank);
            let rest = self.rest();
            let Some(first) = rest.chars().next() else {
                return Err(self.error(format!("expected `{end}`, got end of file")));
            };
            let trims = rest.starts_with('-') && rest[1..].starts_with(end);
            if trims || rest.starts_with(end) {
                self.push(end_token);
                self.advance(end.len() + usize::from(trims));
                return Ok(trims);
            }
            if first == '"' || first == '\'' {
                let text = self.string(first)?;
                self.push(Token::Str(text));
            } else if first.is_ascii_digit() {
                self.number()?;
            } else if rest.starts_with("r/") {
                self.regex()?;
            } else if first.is_alphanumeric() || first == '_' || first == '$' {
                let length =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                let name = self.advance(length).to_owned();
                self.push(Token::Name(name));
            } else if let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) {
                self.push(Token::Op(op));
                self.advance(op.len());
            } else {
                return Err(self.error(format!("unexpected `{first}` in a template tag")));
            }
        }
    }

    fn string(&mut self, quote: char) -> Result<String, TemplateError> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                c if c == quote => {
                    self.advance(at + 1);
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(self.error("text without a closing quote"))
    }

    fn number(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let mut length = digits(rest);
        if rest[length..].starts_with('.') && rest[length + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            length += 1 + digits(&rest[length + 1..]);
        }
        let text = self.advance(length);
        let number = text.parse().map_err(|_| self.error(format!("`{text}` is not a number")))?;
        self.push(Token::Num(number));
        Ok(())
    }

    fn regex(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let mut escaped = false;
        let close = rest[2..].find(|c| {
            let ends = c == '/' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(close) = close else { return Err(self.error("a regular expression without an end")) };
        let body = rest[2..2 + close].to_owned();
        let flags: String = rest[3 + close..].chars().take_while(|c| "gimy".contains(*c)).collect();
        self.advance(3 + close + flags.len());
        self.push(Token::Regex(body, flags));
        Ok(())
    }
}

/// The word of a block tag, and the length of the tag when it holds nothing but the word.
fn tag_word(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix("{%")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let end = inner.find("%}")?;
    let word = inner[..end].trim_end_matches('-').trim();
    let length = text.len() - inner.len() + end + 2;
    word.bytes().all(|b| b.is_ascii_alphabetic()).then_some((word, length))
}
