//! The keywords of JSON Schema, so that a misspelt one is an error and not a check less.

use serde_json::Value;

/// Keywords without schemas in them.
const PLAIN: &[&str] = &[
    "$schema",
    "$id",
    "$ref",
    "$anchor",
    "$comment",
    "$async",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "type",
    "nullable",
    "enum",
    "const",
    "format",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "contentMediaType",
    "contentEncoding",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "discriminator",
];
/// Keywords whose value is a schema, or a list of them.
const SCHEMAS: &[&str] = &[
    "items",
    "additionalItems",
    "prefixItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "if",
    "then",
    "else",
    "not",
    "allOf",
    "anyOf",
    "oneOf",
];
/// Keywords whose value is a map of schemas.
const MAPS: &[&str] =
    &["properties", "patternProperties", "dependencies", "dependentSchemas", "definitions", "$defs"];

/// Returns the first key of a schema that is no keyword.
pub(super) fn unknown(schema: &Value) -> Option<&str> {
    schema.as_object()?.iter().find_map(|(key, value)| {
        let key = key.as_str();
        if PLAIN.contains(&key) {
            None
        } else if SCHEMAS.contains(&key) {
            match value {
                Value::Array(all) => all.iter().find_map(unknown),
                one => unknown(one),
            }
        } else if MAPS.contains(&key) {
            value.as_object().into_iter().flat_map(|map| map.values()).find_map(unknown)
        } else {
            Some(key)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn misspelt_keywords_are_found_where_schemas_are() {
        let schema = json!({
            "type": "object", "required": ["a"], "default": {"anything": 1}, "enum": [{"anything": 1}],
            "properties": {"anything": {"type": "array", "items": [{"minimun": 1}]}},
        });
        assert_eq!(unknown(&schema), Some("minimun"));
        assert_eq!(unknown(&json!({"properties": {"a": true}, "anyOf": [{"not": {"const": 1}}]})), None);
        assert_eq!(unknown(&json!({"additionalProperties": {"typ": "x"}})), Some("typ"));
    }
}
