//! Configuration files: finding and reading them, references, and variables of the environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::ReadError;
use super::diagnostic::{Findings, Severity, nearest};
use super::node::{Entry, Kind, Node};
use crate::model::Object;
use crate::template::{self, Templates};

/// The default name's extensions, in the order they are tried.
const EXTENSIONS: &[&str] = &["yaml", "yml", "json", "cjs", "cts", "js", "mjs", "mts", "ts"];

/// One configuration file.
#[derive(Debug)]
pub struct ConfigFile {
    /// The path.
    pub path: PathBuf,
    /// The directory that its paths are relative to.
    pub base: PathBuf,
    /// The content.
    pub root: Node,
}

/// Returns the configuration of a directory under its default name.
pub fn find(directory: &Path) -> Option<PathBuf> {
    EXTENSIONS
        .iter()
        .map(|extension| directory.join(format!("promptfooconfig.{extension}")))
        .find(|path| path.is_file())
}

/// Returns the files that `-c` arguments name: paths, directories and globs.
pub fn named(arguments: &[String], findings: &mut Findings) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for argument in arguments {
        let path = PathBuf::from(argument);
        if path.is_dir() {
            match find(&path) {
                Some(found) => paths.push(found),
                None => findings.hint(
                    Severity::Error,
                    None,
                    format!("`{argument}` has no promptfooconfig.yaml"),
                    "name a configuration in it, or make one with `sandcove eval init`",
                ),
            }
        } else if path.is_file() {
            paths.push(path);
        } else {
            let matched = super::files::expand(argument);
            if matched.is_empty() {
                let message = format!("configuration not found: `{argument}`");
                findings.hint(Severity::Error, None, message, instead(&path));
            }
            paths.extend(matched);
        }
    }
    paths
}

/// A hint for a configuration that does not exist.
fn instead(path: &Path) -> String {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = std::fs::read_dir(directory.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| {
        path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
    });
    let names: Vec<String> = files.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    let wanted = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match nearest(wanted, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{}`?", path.with_file_name(near).display()),
        None => "check the path, or make a configuration with `sandcove eval init`".to_owned(),
    }
}

/// Reads a YAML or JSON file.
///
/// # Errors
/// When it cannot be read; what is wrong inside becomes a finding.
pub fn read(path: &Path, findings: &mut Findings) -> Result<Node, ReadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ReadError::Unreadable { path: path.to_owned(), source })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let file: Arc<Path> = Arc::from(path);
    match Node::parse(text, &file) {
        Ok(node) => Ok(node),
        Err(finding) => {
            findings.push(finding);
            Err(ReadError::Invalid)
        }
    }
}

/// Replaces `$ref` pointers of a document.
pub fn resolve(root: &mut Node, base: &Path, findings: &mut Findings) {
    if refers(root) {
        let whole = root.clone();
        resolve_references(root, &whole, base, 0, findings);
    }
}

fn refers(node: &Node) -> bool {
    match &node.kind {
        Kind::Scalar(_) => false,
        Kind::List(items) => items.iter().any(refers),
        Kind::Map(entries) => entries.iter().any(|entry| entry.key == "$ref" || refers(&entry.value)),
    }
}

/// Replaces `$ref` pointers by what they point to, in this document or another file.
fn resolve_references(node: &mut Node, root: &Node, base: &Path, depth: usize, findings: &mut Findings) {
    if depth > 50 {
        findings.add(Severity::Error, Some(&node.at), "references go around in a circle");
        return;
    }
    if let Some(target) = node.get("$ref").and_then(Node::text).map(str::to_owned) {
        let Some((mut found, found_root)) = target_of(&target, root, base, findings) else {
            let message = format!("the reference `{target}` points to nothing");
            findings.add(Severity::Error, Some(&node.at), message);
            node.kind = Kind::Scalar(Value::Null);
            return;
        };
        resolve_references(&mut found, found_root.as_ref().unwrap_or(root), base, depth + 1, findings);
        // Keys beside `$ref` change what it brings.
        if let (Kind::Map(entries), Kind::Map(own)) = (&mut found.kind, &node.kind) {
            for entry in own.iter().filter(|entry| entry.key != "$ref") {
                match entries.iter_mut().find(|existing| existing.key == entry.key) {
                    Some(existing) => existing.value = entry.value.clone(),
                    None => entries.push(entry.clone()),
                }
            }
        }
        node.kind = found.kind;
        return;
    }
    match &mut node.kind {
        Kind::Scalar(_) => {}
        Kind::List(items) => {
            items.iter_mut().for_each(|item| resolve_references(item, root, base, depth, findings));
        }
        Kind::Map(entries) => {
            entries
                .iter_mut()
                .for_each(|entry| resolve_references(&mut entry.value, root, base, depth, findings));
        }
    }
}

fn target_of(
    target: &str,
    root: &Node,
    base: &Path,
    findings: &mut Findings,
) -> Option<(Node, Option<Node>)> {
    let (file, pointer) = target.split_once('#').unwrap_or((target, ""));
    let other = if file.is_empty() {
        None
    } else {
        Some(read(&base.join(file.trim_start_matches("file://")), findings).ok()?)
    };
    let mut at = other.as_ref().unwrap_or(root);
    for step in pointer.split('/').filter(|step| !step.is_empty()) {
        let key = step.replace("~1", "/").replace("~0", "~");
        at = match &at.kind {
            Kind::Map(_) => at.get(&key)?,
            Kind::List(items) => items.get(key.parse::<usize>().ok()?)?,
            Kind::Scalar(_) => return None,
        };
    }
    Some((at.clone(), other))
}

/// Fills in `{{ env.NAME }}`; other templates are left for the run.
pub fn render_env(node: &mut Node, templates: &Templates) {
    match &mut node.kind {
        Kind::Scalar(Value::String(text)) if text.contains("env") && text.contains("{{") => {
            *text = env_in(text, templates);
        }
        Kind::Scalar(_) => {}
        Kind::List(items) => items.iter_mut().for_each(|item| render_env(item, templates)),
        Kind::Map(entries) => entries.iter_mut().for_each(|Entry { value, .. }| render_env(value, templates)),
    }
}

/// The name of the variable in a tag such as `{{ env.NAME }}` or `{{ env["NAME"] }}`.
fn variable(tag: &str) -> Option<&str> {
    let after = tag.split_once("env.").or_else(|| tag.split_once("env["))?.1;
    let after = after.trim_start_matches(['"', '\'']);
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
    Some(&after[..end])
}

fn env_in(text: &str, templates: &Templates) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(end) = rest[start..].find("}}").map(|end| start + end + 2) else { break };
        let tag = &rest[start..end];
        // A variable that is not set stays as it is written, and is empty once it is rendered; a filter may give it a value.
        let only_env = template::names(tag).is_some_and(|names| names == ["env"])
            && (tag.contains('|') || variable(tag).is_none_or(|name| templates.env().get(name).is_some()));
        out.push_str(&rest[..start]);
        match only_env.then(|| templates.render(tag, &Object::new())) {
            Some(Ok(rendered)) => out.push_str(&rendered),
            _ => out.push_str(tag),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}
