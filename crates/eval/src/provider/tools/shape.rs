//! Tools of servers as the dialects describe tools.

use serde_json::{Value, json};

use crate::model::Object;

/// Keys of schemas that Gemini takes.
const OF_GEMINI: &[&str] = &[
    "type",
    "format",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "propertyOrdering",
    "items",
];

fn name(tool: &Value) -> Value {
    tool.get("name").cloned().unwrap_or_default()
}

fn description(tool: &Value) -> Value {
    tool.get("description").filter(|text| text.is_string()).cloned().unwrap_or_else(|| json!(""))
}

fn schema(tool: &Value) -> Object {
    tool.get("inputSchema").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The schema without the address of its dialect, and with the type of all arguments.
fn object_schema(tool: &Value) -> Value {
    let mut whole = Object::from_iter([("type".to_owned(), json!("object"))]);
    whole.extend(schema(tool).into_iter().filter(|(key, _)| key != "$schema"));
    Value::Object(whole)
}

fn parameters(tool: &Value) -> Value {
    let schema = schema(tool);
    let mut whole = Object::from_iter([("type".to_owned(), json!("object"))]);
    whole.insert("properties".to_owned(), schema.get("properties").cloned().unwrap_or_else(|| json!({})));
    let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if schema.contains_key("properties") {
        if let Some(required) = schema.get("required").filter(|required| !is_empty(required)) {
            whole.insert("required".to_owned(), required.clone());
        }
        if let Some(additional) = schema.get("additionalProperties") {
            whole.insert("additionalProperties".to_owned(), additional.clone());
        }
    }
    Value::Object(whole)
}

/// A tool as OpenAI's chats have it.
pub fn openai(tool: &Value) -> Value {
    json!({"type": "function", "function": {"name": name(tool), "description": description(tool), "parameters": parameters(tool)}})
}

/// A tool as OpenAI's endpoint `responses` has it.
pub fn responses(tool: &Value) -> Value {
    json!({"type": "function", "name": name(tool), "description": description(tool), "parameters": parameters(tool)})
}

/// A tool as Anthropic has it.
pub fn anthropic(tool: &Value) -> Value {
    json!({"name": name(tool), "description": description(tool), "input_schema": object_schema(tool)})
}

/// A tool as Bedrock's Converse API has it.
pub fn converse(tool: &Value) -> Value {
    json!({"toolSpec": {"name": name(tool), "description": description(tool), "inputSchema": {"json": object_schema(tool)}}})
}

/// A tool as Gemini has it.
pub fn gemini(tool: &Value) -> Value {
    let mut parameters = gemini_schema(&schema(tool));
    parameters.entry("type").or_insert_with(|| json!("OBJECT"));
    parameters.entry("properties").or_insert_with(|| json!({}));
    json!({"functionDeclarations": [{"name": name(tool), "description": description(tool), "parameters": parameters}]})
}

/// A schema with the keys that Gemini takes, and its names of types.
fn gemini_schema(schema: &Object) -> Object {
    let below = |value: &Value| match value {
        Value::Object(map) => Value::Object(gemini_schema(map)),
        other => other.clone(),
    };
    let kept = schema.iter().filter(|(key, _)| OF_GEMINI.contains(&key.as_str()));
    let kept = kept.map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("type", Value::String(name)) if name == "null" => json!("STRING"),
            ("type", Value::String(name)) => json!(name.to_uppercase()),
            ("properties", Value::Object(map)) => {
                map.iter().map(|(name, value)| (name.clone(), below(value))).collect::<Object>().into()
            }
            ("items", value) => below(value),
            (_, value) => value.clone(),
        };
        (key.clone(), value)
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_the_shape_of_each_dialect() {
        let schema = json!({
            "$schema": "x", "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": "array", "title": "A", "items": {"type": "string", "default": ""}}},
        });
        let tool = json!({"name": "t", "description": "d", "inputSchema": schema});
        let properties = &schema["properties"];
        let parameters = json!({"type": "object", "properties": properties, "required": ["a"], "additionalProperties": false});
        assert_eq!(openai(&tool)["function"]["parameters"], parameters);
        assert_eq!(responses(&tool)["parameters"], parameters);
        assert_eq!(anthropic(&tool)["input_schema"].get("$schema"), None);
        assert_eq!(converse(&tool)["toolSpec"]["inputSchema"]["json"]["required"], json!(["a"]));
        let expected = json!({
            "type": "OBJECT", "required": ["a"], "properties": {"a": {"type": "ARRAY", "items": {"type": "STRING"}}},
        });
        assert_eq!(gemini(&tool)["functionDeclarations"][0]["parameters"], expected);
        let bare = json!({"name": "t"});
        assert_eq!(openai(&bare)["function"]["parameters"], json!({"type": "object", "properties": {}}));
        assert_eq!(
            gemini(&bare)["functionDeclarations"][0]["parameters"],
            json!({"type": "OBJECT", "properties": {}})
        );
    }
}
