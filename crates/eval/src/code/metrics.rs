//! Records of graded answers, one JSON file each, in the columns that reports of the tutorials read.

use std::path::Path;

use serde_json::{Value, json};

use crate::grading::GradingContext;
use crate::model::Object;

/// The directory of records below that of the suite, unless `PROMPTFOO_RESULTS_DIR` names another.
const DIRECTORY: &str = ".promptfoo_results";

/// Keeps a record if the assertion's value says `metrics: true`, or the environment names a directory for them. One that cannot
/// be written is no reason to lose a verdict.
pub(super) fn keep(context: &GradingContext<'_>, success: bool, reason: &str, code: &Object) {
    let asked = context.value.and_then(|value| value.get("metrics")).and_then(Value::as_bool);
    let named = context.workers.env().get("PROMPTFOO_RESULTS_DIR").filter(|path| !path.is_empty());
    if asked == Some(false) || (asked.is_none() && named.is_none()) {
        return;
    }
    let directory = context.workers.base().join(named.as_deref().unwrap_or(DIRECTORY));
    if let Err(error) = write(&directory, &record(context, success, reason, code)) {
        tracing::warn!(%error, directory = %directory.display(), "a record of a verdict was not written");
    }
}

fn record(context: &GradingContext<'_>, success: bool, reason: &str, code: &Object) -> Value {
    let text = |key: &str| context.provider.get(key).and_then(Value::as_str);
    let provider = text("label").or(text("id")).unwrap_or_default();
    let (family, model) = (provider.split(':').next(), provider.rsplit(':').next());
    let function = context.vars.get("function_name").and_then(Value::as_str);
    let task = context.test.description.as_deref().or(function);
    let parts = ["cases", "tests"].iter().filter_map(|key| code.get(*key)?.as_array()).flatten();
    let parts: Vec<&Value> = parts.collect();
    let number = |key: &'static str| parts.iter().filter_map(move |part| part.get(key)?.as_f64());
    let milliseconds: f64 = number("durationMs").sum();
    json!({
        "task_id": task.map_or_else(|| format!("test {}", context.row.test), str::to_owned),
        "provider": family,
        "model": model,
        "success": success,
        "runtime_s": milliseconds / 1000.0,
        "memory_mb": number("memoryMb").reduce(f64::max),
        "extra": {"message": reason, "assertion": context.assertion.full_kind(), "repeat": context.row.repeat, "problem": code.get("problem")},
        "timestamp": jiff::Timestamp::now().as_second(),
    })
}

fn write(directory: &Path, record: &Value) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join(format!("metrics_{}.json", uuid::Uuid::new_v4().simple()));
    std::fs::write(path, format!("{record:#}\n"))
}
