//! Words of instructions as BuildKit's shell lexer reads them: quotes, escapes and `$name` (Dockerfile reference, "Environment
//! replacement").

use crate::pattern::{PatternError, replaced, without_prefix, without_suffix};

/// Reason why a text cannot be expanded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExpandError {
    #[error("`{0}` is missing")]
    Missing(char),
    #[error("a single quote is not closed")]
    SingleQuote,
    #[error("a double quote is not closed")]
    DoubleQuote,
    #[error("bad substitution")]
    Substitution,
    #[error("too many nested substitutions")]
    TooDeep,
    #[error("unsupported modifier `{modifier}` of `{name}`")]
    Modifier { modifier: String, name: String },
    #[error("`{0}` must be set")]
    NotSet(String),
    /// The message that `${name:?message}` has for a variable that is not set.
    #[error("{name}: {message}")]
    Required { name: String, message: String },
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// The value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// The variable has this value.
    Set(&'a str),
    /// The variable is known and has no value.
    Unset,
    /// Nothing is known about the variable.
    Unknown,
}

/// A reader of words.
#[derive(Clone, Copy)]
pub(crate) struct Lex<'v> {
    /// The escape character, `\` or a backtick.
    pub escape: char,
    /// Keeps quotes in the result.
    pub raw_quotes: bool,
    /// Keeps escapes in the result.
    pub raw_escapes: bool,
    /// Gives quotes no meaning.
    pub ignore_quotes: bool,
    /// Keeps references to unknown variables as they are written.
    pub keep_unknown: bool,
    /// The variables.
    pub variables: &'v dyn Variables,
}

/// A set of variables.
pub(crate) trait Variables {
    /// The value of a variable.
    fn lookup(&self, name: &str) -> Lookup<'_>;
}

/// A text after expansion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expanded {
    /// The text as one word.
    pub text: String,
    /// The text split at spaces that are neither quoted nor escaped.
    pub words: Vec<String>,
    /// Unknown variables that became empty.
    pub unknown: Vec<String>,
    /// Whether the text has a `$` that is no reference.
    pub literal_dollar: bool,
}

/// Variables of which nothing is known.
struct Nothing;

impl Variables for Nothing {
    fn lookup(&self, _: &str) -> Lookup<'_> {
        Lookup::Unknown
    }
}

impl Lex<'static> {
    /// A reader that keeps all references.
    pub(crate) fn plain(escape: char) -> Self {
        Self {
            escape,
            raw_quotes: false,
            raw_escapes: false,
            ignore_quotes: false,
            keep_unknown: true,
            variables: &Nothing,
        }
    }
}

impl Lex<'_> {
    /// Expands a text.
    ///
    /// # Errors
    /// An error if quotes or braces are not closed or a substitution is invalid.
    pub(crate) fn expand(&self, text: &str) -> Result<Expanded, ExpandError> {
        let mut run = Run {
            lex: self,
            chars: text.chars().collect(),
            at: 0,
            raw_escapes: self.raw_escapes,
            depth: 0,
            unknown: Vec::new(),
            literal_dollar: false,
        };
        let (text, words) = run.until(None, self.raw_escapes)?;
        Ok(Expanded { text, words, unknown: run.unknown, literal_dollar: run.literal_dollar })
    }
}

/// Nesting of `${…}` that is read.
const MAX_DEPTH: usize = 100;

#[derive(Default)]
struct Words {
    done: Vec<String>,
    current: Option<String>,
}

impl Words {
    fn character(&mut self, c: char) {
        if c.is_whitespace() {
            self.done.extend(self.current.take().filter(|word| !word.is_empty()));
        } else {
            self.raw(c);
        }
    }

    fn raw(&mut self, c: char) {
        self.current.get_or_insert_default().push(c);
    }

    fn finish(mut self) -> Vec<String> {
        self.done.extend(self.current.filter(|word| !word.is_empty()));
        self.done
    }
}

struct Run<'l> {
    lex: &'l Lex<'l>,
    chars: Vec<char>,
    at: usize,
    raw_escapes: bool,
    depth: usize,
    unknown: Vec<String>,
    literal_dollar: bool,
}

impl Run<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    /// Reads up to an unquoted character, or to the end.
    fn until(&mut self, stop: Option<char>, raw_escapes: bool) -> Result<(String, Vec<String>), ExpandError> {
        let before = std::mem::replace(&mut self.raw_escapes, raw_escapes);
        let read = self.read_until(stop);
        self.raw_escapes = before;
        read
    }

    fn read_until(&mut self, stop: Option<char>) -> Result<(String, Vec<String>), ExpandError> {
        let mut out = String::new();
        let mut words = Words::default();
        while let Some(c) = self.peek() {
            if Some(c) == stop {
                self.next();
                return Ok((out, words.finish()));
            }
            let special = match c {
                '$' => Some(self.dollar()?),
                '<' => Some(self.less_than()),
                '\'' if !self.lex.ignore_quotes => Some(self.single_quoted()?),
                '"' if !self.lex.ignore_quotes => Some(self.double_quoted()?),
                _ => None,
            };
            if let Some(text) = special {
                if c == '$' {
                    text.chars().for_each(|c| words.character(c));
                } else {
                    words.current.get_or_insert_default().push_str(&text);
                }
                out.push_str(&text);
                continue;
            }
            self.next();
            if c != self.lex.escape {
                words.character(c);
                out.push(c);
                continue;
            }
            if self.raw_escapes {
                words.raw(c);
                out.push(c);
            }
            let Some(escaped) = self.next() else { break };
            self.literal_dollar |= escaped == '$';
            words.raw(escaped);
            out.push(escaped);
        }
        match stop {
            Some(stop) => Err(ExpandError::Missing(stop)),
            None => Ok((out, words.finish())),
        }
    }

    fn single_quoted(&mut self) -> Result<String, ExpandError> {
        let mut out = String::new();
        let quote = self.next();
        out.extend(quote.filter(|_| self.lex.raw_quotes));
        loop {
            match self.next() {
                None => return Err(ExpandError::SingleQuote),
                Some('\'') => {
                    out.extend(Some('\'').filter(|_| self.lex.raw_quotes));
                    return Ok(out);
                }
                Some(c) => {
                    self.literal_dollar |= c == '$';
                    out.push(c);
                }
            }
        }
    }

    fn double_quoted(&mut self) -> Result<String, ExpandError> {
        let mut out = String::new();
        let quote = self.next();
        out.extend(quote.filter(|_| self.lex.raw_quotes));
        loop {
            match self.peek() {
                None => return Err(ExpandError::DoubleQuote),
                Some('"') => {
                    out.extend(self.next().filter(|_| self.lex.raw_quotes));
                    return Ok(out);
                }
                Some('$') => out.push_str(&self.dollar()?),
                Some(c) if c == self.lex.escape => {
                    self.next();
                    if self.raw_escapes {
                        out.push(c);
                    }
                    match self.peek() {
                        None => {}
                        Some(escaped) if escaped == '"' || escaped == '$' || escaped == c => {
                            self.next();
                            self.literal_dollar |= escaped == '$';
                            out.push(escaped);
                        }
                        Some(_) => out.push(c),
                    }
                }
                Some(c) => {
                    self.next();
                    out.push(c);
                }
            }
        }
    }

    /// `<`, or the `<<` of a heredoc with the spaces after it, which belong to its word.
    fn less_than(&mut self) -> String {
        let mut out = String::from('<');
        self.next();
        if self.peek() == Some('<') {
            out.extend(self.next());
            while let Some('\t' | '\r' | ' ') = self.peek() {
                out.extend(self.next());
            }
        }
        out
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            if name.is_empty() && c.is_ascii_digit() {
                while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
                    name.push(digit);
                    self.next();
                }
                break;
            }
            if name.is_empty() && "@*#?-$!".contains(c) {
                name.extend(self.next());
                break;
            }
            if !c.is_alphanumeric() && c != '_' {
                break;
            }
            name.push(c);
            self.next();
        }
        name
    }

    fn dollar(&mut self) -> Result<String, ExpandError> {
        self.next();
        let variables = self.lex.variables;
        if self.peek() != Some('{') {
            let name = self.name();
            if name.is_empty() {
                self.literal_dollar = true;
                return Ok("$".to_owned());
            }
            return Ok(match variables.lookup(&name) {
                Lookup::Set(value) => value.to_owned(),
                Lookup::Unknown if self.lex.keep_unknown => format!("${name}"),
                other => self.empty(name, other),
            });
        }
        self.next();
        match self.peek() {
            None => return Err(ExpandError::Missing('}')),
            Some('{' | '}' | ':') => return Err(ExpandError::Substitution),
            Some(_) => {}
        }
        if self.depth >= MAX_DEPTH {
            return Err(ExpandError::TooDeep);
        }
        let name = self.name();
        let value = variables.lookup(&name);
        let mut modifier = self.next().ok_or(ExpandError::Missing('}'))?;
        let colon = modifier == ':';
        match modifier {
            '}' => {
                return Ok(match value {
                    Lookup::Set(value) => value.to_owned(),
                    Lookup::Unknown if self.lex.keep_unknown => format!("${{{name}}}"),
                    other => self.empty(name, other),
                });
            }
            '/' => return self.replacement(&name, value),
            ':' => modifier = self.next().ok_or(ExpandError::Missing('}'))?,
            _ => {}
        }
        let is_pattern = matches!(modifier, '#' | '%');
        let shown = if colon { format!(":{modifier}") } else { modifier.to_string() };
        if !matches!(modifier, '-' | '+' | '?' | '#' | '%') || (colon && is_pattern) {
            return Err(ExpandError::Modifier { modifier: shown, name });
        }
        let word = self.nested('}', is_pattern)?;
        let value = match value {
            Lookup::Unknown if self.lex.keep_unknown => return Ok(format!("${{{name}{shown}{word}}}")),
            Lookup::Set(value) => Some(value),
            Lookup::Unset | Lookup::Unknown => None,
        };
        let present = value.filter(|value| !(colon && value.is_empty()));
        match modifier {
            '-' => Ok(present.map_or(word, str::to_owned)),
            '+' => Ok(present.map_or(String::new(), |_| word)),
            '?' => match present {
                Some(value) => Ok(value.to_owned()),
                None if word.is_empty() => Err(ExpandError::NotSet(name)),
                None => Err(ExpandError::Required { name, message: word }),
            },
            _ => {
                let longest = word.strip_prefix(modifier);
                let (pattern, greedy) = (longest.unwrap_or(&word), longest.is_some());
                let value = value.unwrap_or_default();
                Ok(if modifier == '#' {
                    without_prefix(pattern, value, greedy)?
                } else {
                    without_suffix(pattern, value, greedy)?
                })
            }
        }
    }

    fn nested(&mut self, stop: char, raw_escapes: bool) -> Result<String, ExpandError> {
        self.depth += 1;
        let read = self.until(Some(stop), raw_escapes);
        self.depth -= 1;
        Ok(read?.0)
    }

    fn replacement(&mut self, name: &str, value: Lookup<'_>) -> Result<String, ExpandError> {
        let all = self.peek() == Some('/');
        if all {
            self.next();
        }
        let pattern = self.nested('/', true)?;
        let replacement = self.nested('}', true)?;
        let value = match value {
            Lookup::Unknown if self.lex.keep_unknown => {
                let slashes = if all { "//" } else { "/" };
                return Ok(format!("${{{name}{slashes}{pattern}/{replacement}}}"));
            }
            Lookup::Set(value) => value,
            Lookup::Unset | Lookup::Unknown => "",
        };
        Ok(replaced(&pattern, value, &replacement, all)?)
    }

    /// The empty text, for a variable without value.
    fn empty(&mut self, name: String, value: Lookup<'_>) -> String {
        if value == Lookup::Unknown && !self.unknown.contains(&name) {
            self.unknown.push(name);
        }
        String::new()
    }
}

#[cfg(test)]
mod tests;
