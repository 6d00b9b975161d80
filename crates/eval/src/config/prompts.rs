//! Prompts: texts, files of many kinds, and functions.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::model::Object;
use crate::reading::diagnostic::{Diagnostic, Findings, Severity};
use crate::reading::files;
use crate::reading::node::{Kind, Node};
use crate::reading::references::{self, ReferenceError};
use crate::reading::schema::{PROMPT, check_keys, wrong_shape};
use crate::script::command::words;

/// A prompt before rendering.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// The text, or what stands for it when a function makes the text.
    pub raw: String,
    /// The label.
    pub label: String,
    /// The id that the configuration gives it.
    pub given_id: Option<String>,
    /// Settings for the provider, for this prompt only.
    pub config: Option<Object>,
    /// The code that makes the text, if it is not in `raw`.
    pub source: Source,
}

/// Services that keep prompts, whose addresses must not be taken for texts.
const SERVICES: &[&str] = &["langfuse://", "portkey://", "helicone://"];

/// Reason why a file gave no prompts.
#[derive(Debug, thiserror::Error)]
enum PromptFileError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error("{0}")]
    Parse(Diagnostic),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
}

/// The origin of the text of a prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Source {
    /// The prompt itself is the text.
    #[default]
    Text,
    /// A function in a file, called for every row.
    Script {
        /// The file.
        path: PathBuf,
        /// The function.
        name: Option<String>,
    },
    /// A program whose output is the text.
    Command(Vec<String>),
}

impl Prompt {
    /// Returns the SHA-256 of the label, else of the id, else of the text.
    pub fn id(&self) -> String {
        let of = [Some(&self.label), self.given_id.as_ref(), Some(&self.raw)].into_iter().flatten();
        let text = of.into_iter().find(|text| !text.is_empty()).map(String::as_str).unwrap_or_default();
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn text(raw: &str, label: impl Into<String>) -> Self {
        Self { raw: raw.to_owned(), label: label.into(), ..Self::default() }
    }
}

/// Reads the `prompts` of a configuration.
pub fn read(node: &Node, base: &Path, findings: &mut Findings) -> Vec<Prompt> {
    match &node.kind {
        Kind::Scalar(Value::String(text)) => one(text, None, node, base, findings),
        Kind::List(items) => items.iter().flat_map(|item| item_of_list(item, base, findings)).collect(),
        Kind::Map(entries) => {
            let labelled = entries.iter().map(|entry| (entry, entry.value.text().map(str::to_owned)));
            labelled.flat_map(|(entry, label)| one(&entry.key, label, &entry.value, base, findings)).collect()
        }
        _ => {
            wrong_shape(node, "`prompts`", "text, a list or a map", findings);
            Vec::new()
        }
    }
}

fn item_of_list(node: &Node, base: &Path, findings: &mut Findings) -> Vec<Prompt> {
    if let Some(text) = node.text() {
        return one(text, None, node, base, findings);
    }
    if !node.is_map() {
        wrong_shape(node, "a prompt", "text or a map with `id` or `raw`", findings);
        return Vec::new();
    }
    check_keys(node, PROMPT, "a prompt", findings);
    let text_of = |key: &str| node.get(key).and_then(Node::text);
    let label = text_of("label").map(str::to_owned);
    let config = node.get("config").map(Node::to_value).and_then(|value| value.as_object().cloned());
    let mut prompts = match (text_of("raw"), text_of("id")) {
        (Some(raw), _) => one(raw, label, node, base, findings),
        (None, Some(id)) => one(id, label, node, base, findings),
        (None, None) => {
            findings.add(
                Severity::Error,
                Some(&node.at),
                "a prompt needs `raw` (its text) or `id` (its file)",
            );
            Vec::new()
        }
    };
    for prompt in &mut prompts {
        prompt.config.clone_from(&config);
        prompt.given_id = text_of("id").map(str::to_owned);
    }
    prompts
}

/// The prompts that one text stands for.
fn one(text: &str, label: Option<String>, node: &Node, base: &Path, findings: &mut Findings) -> Vec<Prompt> {
    if let Some(command) = text.strip_prefix("exec:") {
        let raw = command.trim().to_owned();
        let label = label.unwrap_or_else(|| raw.clone());
        let source = Source::Command(words(command));
        return vec![Prompt { raw, label, source, ..Prompt::default() }];
    }
    if let Some(service) = SERVICES.iter().find(|service| text.starts_with(**service)) {
        let message = format!("prompts cannot be read from `{}`", service.trim_end_matches("://"));
        let hint = "save the prompt as a text file, or fetch it in a function of a Python or JavaScript file";
        findings.hint(Severity::Error, Some(&node.at), message, hint);
        return Vec::new();
    }
    let explicit = text.starts_with("file://");
    let (path, _) = files::split_name(text);
    let whole = base.join(path);
    let matches = if explicit || !text.contains('\n') {
        if whole.is_file() {
            vec![whole]
        } else if files::is_glob(path) {
            files::expand(&base.join(path).to_string_lossy())
        } else {
            Vec::new()
        }
    } else {
        Vec::new()
    };
    if matches.is_empty() {
        if explicit {
            findings.add(Severity::Error, Some(&node.at), format!("prompt file not found: `{path}`"));
            return Vec::new();
        }
        return vec![Prompt::text(text, label.unwrap_or_else(|| text.to_owned()))];
    }
    let (_, name) = files::split_name(text);
    let mut prompts = Vec::new();
    let directory = named_directory(node, base);
    for path in matches {
        let own = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned();
        let shown = directory.join(&own).to_string_lossy().into_owned();
        match from_file(&path, &shown, name, label.as_deref(), base) {
            Ok(found) if found.is_empty() => {
                findings.add(Severity::Error, Some(&node.at), format!("there are no prompts in `{shown}`"));
            }
            Ok(found) => prompts.extend(found.into_iter().map(|prompt| {
                // Providers and tests name it by its path in the directory of the configuration.
                let rest = prompt.label.strip_prefix(&shown).map(|rest| format!("{own}{rest}"));
                Prompt { given_id: rest.filter(|name| *name != prompt.label), ..prompt }
            })),
            Err(error) => {
                findings.add(
                    Severity::Error,
                    Some(&node.at),
                    format!("failed to read the prompt file `{shown}`: {error}"),
                );
            }
        }
    }
    prompts
}

/// The directory of a configuration as the command line names it, which labels begin with; nothing for the one the command is run in.
fn named_directory(node: &Node, base: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(|path| path.canonicalize());
    match node.at.file.parent() {
        Some(directory) if here.is_ok_and(|here| here != base) => directory.to_owned(),
        _ => PathBuf::new(),
    }
}

fn from_file(
    path: &Path,
    shown: &str,
    name: Option<&str>,
    label: Option<&str>,
    base: &Path,
) -> Result<Vec<Prompt>, PromptFileError> {
    let extension = files::extension(&path.to_string_lossy());
    if extension == "py" || files::is_javascript(&extension) {
        let raw = std::fs::read_to_string(path)?;
        // A file of Python that is run as a whole is its own label.
        let default_label = match name {
            Some(name) => format!("{shown}:{name}"),
            None if extension == "py" => format!("{shown}: {raw}"),
            None => shown.to_owned(),
        };
        let source = Source::Script { path: path.to_owned(), name: name.map(str::to_owned) };
        let label = label.map_or(default_label, str::to_owned);
        return Ok(vec![Prompt { raw, label, source, ..Prompt::default() }]);
    }
    if matches!(extension.as_str(), "sh" | "bash" | "rb" | "pl" | "exe" | "bat" | "cmd" | "ps1") {
        let source = Source::Command(vec![path.to_string_lossy().into_owned()]);
        let label = label.unwrap_or(shown).to_owned();
        return Ok(vec![Prompt { raw: shown.to_owned(), label, source, ..Prompt::default() }]);
    }
    let text = std::fs::read_to_string(path)?;
    // Some editors mark the encoding, which is no part of the text.
    let text = text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned);
    let titled = |content: &str| label.map_or_else(|| format!("{shown}: {content}"), str::to_owned);
    Ok(match extension.as_str() {
        "md" | "j2" => {
            let start: String = text.chars().take(50).collect();
            vec![Prompt::text(&text, titled(&format!("{start}...")))]
        }
        "json" => {
            let text = with_files(text, base)?;
            vec![Prompt::text(&text, titled(&text))]
        }
        "jsonl" => {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            let only = lines.len() == 1;
            let label = |line: &str| match label {
                Some(label) if only => label.to_owned(),
                Some(label) => format!("{label}: {line}"),
                None if only => shown.to_owned(),
                None => format!("{shown}: {line}"),
            };
            lines.iter().map(|line| Prompt::text(line, label(line))).collect()
        }
        "yaml" | "yml" => {
            let node = Node::parse(&text, &path.into()).map_err(PromptFileError::Parse)?;
            let mut value = node.into_value();
            references::resolve(&mut value, base)?;
            let json = value.to_string();
            let start: String = json.chars().take(80).collect();
            vec![Prompt::text(&json, titled(&start))]
        }
        "csv" => from_csv(&text),
        _ => {
            let separator = std::env::var("PROMPTFOO_PROMPT_SEPARATOR").unwrap_or_else(|_| "---".to_owned());
            let label = |piece: &str| match label {
                Some(label) => format!("{label}: {shown}: {piece}"),
                None => format!("{shown}: {piece}"),
            };
            split_at_lines(&text, &separator).iter().map(|piece| Prompt::text(piece, label(piece))).collect()
        }
    })
}

/// A chat in JSON, without spaces and with the files that its messages name. What is not JSON before it is rendered is left as it is.
fn with_files(text: String, base: &Path) -> Result<String, ReferenceError> {
    match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => {
            references::resolve(&mut value, base)?;
            Ok(value.to_string())
        }
        _ => Ok(text),
    }
}

/// Splits a text at lines that hold nothing but the separator.
fn split_at_lines(text: &str, separator: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim() == separator {
            pieces.push(String::new());
        } else if let Some(piece) = pieces.last_mut() {
            piece.push_str(line);
            piece.push('\n');
        }
    }
    pieces.iter().map(|piece| piece.trim().to_owned()).filter(|piece| !piece.is_empty()).collect()
}

fn from_csv(text: &str) -> Vec<Prompt> {
    let delimiter = std::env::var("PROMPTFOO_CSV_DELIMITER").unwrap_or_else(|_| ",".to_owned());
    let plain = |text: &str| {
        let start: String = text.chars().take(60).collect();
        start
    };
    if !text.contains(&delimiter) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines
            .enumerate()
            .filter(|(at, line)| *at > 0 || *line != "prompt")
            .map(|(_, line)| line)
            .collect();
        let label =
            |(at, line): (usize, &&str)| Prompt::text(line, format!("Prompt {} - {}", at + 1, plain(line)));
        return lines.iter().enumerate().map(label).collect();
    }
    let rows = super::csv::rows(text).unwrap_or_default();
    let labelled = rows.iter().enumerate().filter_map(|(at, row)| {
        let cell = |name| row.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
        let raw = cell("prompt")?;
        let label = cell("label").map(str::to_owned);
        Some(Prompt::text(raw, label.unwrap_or_else(|| format!("Prompt {} - {}", at + 1, plain(raw)))))
    });
    labelled.collect()
}

/// Whether a prompt is meant by an entry of a `prompts` list of a provider or a test.
pub fn is_meant(prompt: &Prompt, entry: &str) -> bool {
    let names = [Some(prompt.label.as_str()), prompt.given_id.as_deref()];
    let prefix = entry.strip_suffix(":*").unwrap_or(entry);
    names
        .into_iter()
        .flatten()
        .any(|name| name == entry || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(':')))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn read_text(text: &str, base: &Path) -> (Vec<Prompt>, Findings) {
        let node = Node::parse(text, &Arc::from(Path::new("c.yaml"))).unwrap();
        let mut findings = Findings::default();
        (read(&node, base, &mut findings), findings)
    }

    #[test]
    fn ordinary_text_is_not_taken_for_a_file() {
        let (prompts, findings) = read_text(
            "['Compare {{a}} / {{b}}', 'see https://x.org', 'and\\or', 'read notes.md']",
            Path::new("/nowhere"),
        );
        assert_eq!(prompts.len(), 4);
        assert!(!findings.failed());
        let (_, findings) = read_text("file://missing.txt", Path::new("/nowhere"));
        assert!(findings.failed());
    }

    #[test]
    fn text_files_are_split() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("p.txt"), "\u{feff}one\r\nmore\r\n---\r\n\r\ntwo {{x}}\n").unwrap();
        std::fs::write(dir.path().join("c.json"), r#"[{"role":"user"}]"#).unwrap();
        let (prompts, _) = read_text("[p.txt, {id: file://c.json, label: chat}]", dir.path());
        let raws: Vec<&str> = prompts.iter().map(|prompt| prompt.raw.as_str()).collect();
        assert_eq!(raws, ["one\nmore", "two {{x}}", r#"[{"role":"user"}]"#]);
        assert_eq!(prompts[0].label, "p.txt: one\nmore");
        assert_eq!(prompts[2].label, "chat");
    }

    #[test]
    fn messages_of_chats_may_be_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("system.txt"), "be kind").unwrap();
        std::fs::write(dir.path().join("c.json"), r#"[{"content":"file://system.txt"}]"#).unwrap();
        std::fs::write(dir.path().join("c.yaml"), "- content: file://system.txt\n").unwrap();
        let (prompts, _) = read_text("[file://c.json, file://c.yaml]", dir.path());
        let raws: Vec<&str> = prompts.iter().map(|prompt| prompt.raw.as_str()).collect();
        assert_eq!(raws, [r#"[{"content":"be kind"}]"#; 2]);
    }
}
