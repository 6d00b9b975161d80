//! Removing what is not to be stored of rows: `PROMPTFOO_STRIP_…`.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::model::{Column, Row};
use crate::reading::env::is_on;

const STRIPPED_PROMPT: &str = "[prompt stripped]";

/// The parts of rows that are removed; read once, because every row needs them.
struct RemovedParts {
    prompt: bool,
    output: bool,
    vars: bool,
    grading: bool,
    metadata: bool,
}

static SWITCHES: LazyLock<RemovedParts> = LazyLock::new(|| RemovedParts {
    prompt: is_on("PROMPTFOO_STRIP_PROMPT_TEXT"),
    output: is_on("PROMPTFOO_STRIP_RESPONSE_OUTPUT"),
    vars: is_on("PROMPTFOO_STRIP_TEST_VARS"),
    grading: is_on("PROMPTFOO_STRIP_GRADING_RESULT"),
    metadata: is_on("PROMPTFOO_STRIP_METADATA"),
});

/// Removes the texts of prompts from columns.
pub fn columns(columns: &mut [Column]) {
    if SWITCHES.prompt {
        columns.iter_mut().for_each(|column| column.raw = STRIPPED_PROMPT.to_owned());
    }
}

/// Serializes a row without what is not to be stored.
pub fn text(row: &Row) -> String {
    let RemovedParts { prompt, output, vars, grading, metadata } = *SWITCHES;
    if !(prompt || output || vars || grading || metadata) {
        return serde_json::to_string(row).unwrap_or_default();
    }
    let mut row = serde_json::to_value(row).unwrap_or_default();
    let mut set = |pointer: &str, value: Value| {
        if let Some(found) = row.pointer_mut(pointer) {
            *found = value;
        }
    };
    if prompt {
        set("/prompt/raw", json!(STRIPPED_PROMPT));
    }
    if output {
        set("/response/output", json!("[output stripped]"));
    }
    if vars {
        set("/vars", json!({}));
        set("/testCase/vars", json!({}));
    }
    if grading {
        set("/gradingResult", Value::Null);
    }
    if metadata {
        set("/metadata", json!({}));
        set("/testCase/metadata", json!({}));
        set("/response/metadata", json!({}));
    }
    row.to_string()
}
