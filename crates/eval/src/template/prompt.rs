//! How a row's variables and prompt are rendered.

use serde_json::Value;

use super::{TemplateError, Templates, is_template, json, names};
use crate::model::Object;

/// Settings of the environment that change what is rendered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Switches {
    /// Whether templates are left as they are.
    pub no_templates: bool,
    /// A prompt that is JSON is rendered as text.
    pub no_json_escape: bool,
}

/// The variables as prompts and assertions see them: one trailing line feed less, references to each other replaced, and
/// each text rendered as a template unless it mentions something unknown.
pub fn variables(templates: &Templates, vars: &Object, switches: Switches) -> Object {
    let mut out = vars.clone();
    for value in out.values_mut() {
        if let Value::String(text) = value
            && text.ends_with('\n')
        {
            text.pop();
        }
    }
    if switches.no_templates || !out.values().any(|value| value.as_str().is_some_and(is_template)) {
        return out;
    }
    for _ in 0..5 {
        if !replace_references(&mut out) {
            break;
        }
    }
    let known = out.clone();
    for value in out.values_mut() {
        let Value::String(text) = value else { continue };
        if !is_template(text) {
            continue;
        }
        let all_known = names(text).is_some_and(|names| {
            names.iter().all(|name| known.contains_key(name) || name == "env" || is_local(name, text))
        });
        if all_known && let Ok(rendered) = templates.render(text, &known) {
            *text = rendered;
        }
    }
    out
}

/// Names that a template makes itself.
fn is_local(name: &str, text: &str) -> bool {
    name == "loop"
        || super::globals::NAMES.contains(&name)
        || ["set", "for", "macro"].iter().any(|tag| text.contains(&format!("{tag} {name}")))
}

/// Replaces `{{name}}` by the variable of that name, in all text variables; true if anything changed.
fn replace_references(vars: &mut Object) -> bool {
    let known = vars.clone();
    let mut changed = false;
    for value in vars.values_mut() {
        let Value::String(text) = value else { continue };
        if !text.contains("{{") {
            continue;
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        let mut replaced = false;
        while let Some(start) = rest.find("{{") {
            let Some(end) = rest[start..].find("}}").map(|end| start + end) else { break };
            let name = rest[start + 2..end].trim();
            let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            match known.get(name) {
                Some(Value::String(other)) if plain => {
                    out.push_str(&rest[..start]);
                    out.push_str(other);
                    replaced = true;
                }
                _ => out.push_str(&rest[..end + 2]),
            }
            rest = &rest[end + 2..];
        }
        out.push_str(rest);
        changed |= replaced && out != *text;
        *text = out;
    }
    changed
}

/// The prompt with its variables filled in. A prompt that is JSON is filled in leaf by leaf, so that no value can break it.
///
/// # Errors
/// When the template is malformed.
pub fn prompt(
    templates: &Templates,
    raw: &str,
    vars: &Object,
    switches: Switches,
) -> Result<String, TemplateError> {
    if switches.no_templates {
        return Ok(raw.to_owned());
    }
    if !switches.no_json_escape
        && let Ok(value) = serde_json::from_str::<Value>(raw)
    {
        return Ok(json::stringify(&templates.render_value(&value, vars)?, "  "));
    }
    if unclosed_line(raw).is_some() {
        return Ok(raw.to_owned());
    }
    templates.render(raw, vars)
}

/// The first line (from 1) that opens a tag and does not close it: such a prompt is taken as it is.
pub fn unclosed_line(text: &str) -> Option<usize> {
    text.lines().position(opens_more_than_it_closes).map(|at| at + 1)
}

fn opens_more_than_it_closes(line: &str) -> bool {
    [("{{", "}}"), ("{%", "%}"), ("{#", "#}")].iter().any(|(open, close)| {
        let last = line.rfind(open);
        last.is_some_and(|at| !line[at..].contains(close))
    })
}
