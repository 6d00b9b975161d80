//! The targets of a red team.

use std::path::Path;

use sandcove_redteam::generate::Targets;
use sandcove_redteam::probe::Layer;
use sandcove_redteam::section::Section;
use serde_json::{Map, Value, json};

use super::AttackError;
use crate::calling::spec::ProviderSpec;
use crate::provider::{Family, family_of};
use crate::redteam::WallProvider;

/// The label of sandboxes that have none.
const SANDBOX: &str = "sandbox";

/// Returns the targets by layer, and as the suite has them: a sandbox is attacked by a provider of its own, and stands behind every check.
pub(super) fn targets(
    named: Option<Value>,
    section: &Section,
    base: &Path,
) -> Result<(Targets, Vec<Value>), AttackError> {
    let list = match named {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    let mut targets = Targets::default();
    let mut specs = Vec::new();
    for value in list {
        let Some(spec) = ProviderSpec::from_value(&value, base) else {
            return Err(AttackError::Target(value.to_string(), "it has no id".to_owned()));
        };
        let family = family_of(&spec)
            .map_err(|error| AttackError::Target(spec.name().to_owned(), error.to_string()))?;
        let asked = spec.config.get("layer").and_then(Value::as_str).and_then(Layer::named);
        let layer = asked.unwrap_or(match family {
            Family::Gate(_) => Layer::Gate,
            Family::Wall | Family::Sandbox(_) => Layer::Wall,
            _ => Layer::Model,
        });
        let (label, value) = match layer {
            Layer::Wall => {
                let label = free_label(&targets, spec.label.as_deref().unwrap_or(SANDBOX));
                let value = wall(&label, &spec.config);
                (label, value)
            }
            Layer::Gate | Layer::Model => (spec.name().to_owned(), value),
        };
        targets.by_layer.entry(layer).or_default().push(label);
        specs.push(value);
    }
    let has = |layer: Layer| targets.by_layer.contains_key(&layer);
    // What a check misses meets the sandbox.
    if !has(Layer::Wall)
        && (has(Layer::Gate) || specs.is_empty())
        && (section.layers.is_empty() || section.layers.contains(&Layer::Wall))
    {
        let label = free_label(&targets, SANDBOX);
        specs.push(wall(&label, &Map::new()));
        targets.by_layer.insert(Layer::Wall, vec![label]);
    }
    for (layer, why) in [
        (Layer::Model, "no target is a model"),
        (Layer::Gate, "no target checks code before it runs"),
        (Layer::Wall, "no target is a sandbox; add `sandbox` to the targets"),
    ] {
        if !targets.by_layer.contains_key(&layer) {
            targets.missing.insert(layer, why.to_owned());
        }
    }
    Ok((targets, specs))
}

/// Returns a label that no target has: tests name their targets by labels.
fn free_label(targets: &Targets, wanted: &str) -> String {
    let is_taken = |label: &str| targets.by_layer.values().flatten().any(|known| known == label);
    let mut label = wanted.to_owned();
    while is_taken(&label) {
        label.push_str("-wall");
    }
    label
}

fn wall(label: &str, config: &Map<String, Value>) -> Value {
    json!({"id": WallProvider::ID, "label": label, "config": config})
}
