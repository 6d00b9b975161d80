//! Files that the `redteam` section of a configuration names.

use std::path::Path;

use sandcove_redteam::probe;
use sandcove_redteam::section::{Named, Section};
use serde_json::{Map, Value, json};

use super::attacks::AttackError;
use super::csv;
use crate::reading::diagnostic::Findings;
use crate::reading::{document, files};

/// The settings of a plugin that is a file: `generator`, a prompt for attacks, and `grader`, a rubric.
pub(super) fn plugin(
    id: &str,
    base: &Path,
    findings: &mut Findings,
) -> Result<Map<String, Value>, AttackError> {
    let wrong = |reason: String| AttackError::Plugin { id: id.to_owned(), reason };
    let read =
        document::read(&files::resolve(base, id), findings).map_err(|error| wrong(error.to_string()))?;
    let Value::Object(map) = read.to_value() else { return Err(wrong("it is no map".to_owned())) };
    for key in ["generator", "grader"] {
        if map.get(key).and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
            return Err(wrong(format!("it has no text `{key}`")));
        }
    }
    Ok(map)
}

/// Reads the texts of the plugin `intent` where they are in a file: JSON, YAML, or a table, of which the first column counts. Any other file is
/// one text.
pub(super) fn read_intents(plugin: &mut Named, base: &Path) -> Result<(), AttackError> {
    let Some(reference) = plugin.config.get("intent").and_then(Value::as_str) else { return Ok(()) };
    if plugin.id != "intent" || !reference.starts_with("file://") {
        return Ok(());
    }
    let wrong = |reason: String| AttackError::Plugin {
        id: plugin.id.clone(),
        reason: format!("`{reference}`: {reason}"),
    };
    let path = files::resolve(base, reference);
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let texts = match files::extension(reference).as_str() {
        "csv" => {
            let rows = csv::rows(&text).map_err(|error| wrong(error.to_string()))?;
            rows.iter().filter_map(|row| Some(json!(row.values().next()?))).collect()
        }
        "json" | "yaml" | "yml" => document::read(&path, &mut Findings::default())
            .map_err(|error| wrong(error.to_string()))?
            .to_value(),
        _ => json!(text.trim()),
    };
    plugin.config.insert("intent".to_owned(), texts);
    Ok(())
}

/// The texts of strategies that are programs.
pub(super) fn programs(section: &Section, base: &Path) -> Result<Vec<String>, AttackError> {
    let named = section.strategies.iter().filter(|named| named.id.starts_with("file://"));
    let read = named.map(|named| {
        std::fs::read_to_string(files::resolve(base, &named.id))
            .map_err(|error| AttackError::Strategy { id: named.id.clone(), error })
    });
    read.collect()
}

/// The probes of the user.
pub(super) fn probes(section: &Section, base: &Path) -> Result<Vec<probe::Probe>, AttackError> {
    let mut all = Vec::new();
    for reference in &section.probes {
        let wrong = |reason: String| AttackError::Probes { path: reference.clone(), reason };
        let text = std::fs::read_to_string(files::resolve(base, reference))
            .map_err(|error| wrong(error.to_string()))?;
        all.extend(probe::read(&text).map_err(|error| wrong(error.to_string()))?);
    }
    Ok(all)
}
