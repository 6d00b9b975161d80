//! A table for spreadsheets.

use serde_json::Value;

use crate::model::{Column, Evaluation, Object, Row, number, number_value};
use crate::template::value::to_text;

/// Facts about an attack in the metadata of a row: the key, and the name of the column.
const OF_ATTACKS: [(&str, &str); 7] = [
    ("messages", "Messages"),
    ("redteamHistory", "RedteamHistory"),
    ("redteamTreeHistory", "RedteamTreeHistory"),
    ("pluginId", "pluginId"),
    ("strategyId", "strategyId"),
    ("sessionId", "sessionId"),
    ("sessionIds", "sessionIds"),
];

/// Whether a run is one of a red team.
fn attacks(evaluation: &Evaluation) -> bool {
    evaluation.config.get("redteam").is_some_and(|section| !section.is_null())
}

/// The names of the columns.
pub fn head(evaluation: &Evaluation) -> Vec<String> {
    let mut head: Vec<String> = evaluation.described.then(|| "Description".to_owned()).into_iter().collect();
    head.extend(evaluation.vars.iter().cloned());
    for column in &evaluation.columns {
        head.push(format!("[{}] {}", column.provider, column.label));
        head.extend(["Status", "Score", "Named Scores"].map(str::to_owned));
        head.extend(metrics(column).into_iter().map(|name| format!("Metric: {name}")));
        head.extend(["Grader Reason", "Comment"].map(str::to_owned));
    }
    if attacks(evaluation) {
        head.extend(OF_ATTACKS.map(|(_, name)| name.to_owned()));
    }
    head
}

/// The cells of one test.
pub fn record(evaluation: &Evaluation, group: &[Row]) -> Vec<String> {
    let mut cells = Vec::new();
    if evaluation.described {
        cells.push(safe(group[0].description.clone().unwrap_or_default()));
    }
    cells.extend(
        evaluation.vars.iter().map(|name| safe(group[0].vars.get(name).map(to_text).unwrap_or_default())),
    );
    for (at, column) in evaluation.columns.iter().enumerate() {
        match group.iter().find(|row| row.prompt_idx == at) {
            Some(row) => row_cells(row, column, &mut cells),
            None => cells.extend(std::iter::repeat_n(String::new(), 6 + metrics(column).len())),
        }
    }
    if attacks(evaluation) {
        cells.extend(OF_ATTACKS.map(|(key, _)| of_attack(&group[0], key)));
    }
    cells
}

/// The cell of a fact about an attack.
fn of_attack(row: &Row, key: &str) -> String {
    match row.metadata.get(key) {
        None | Some(Value::Null) if key == "strategyId" => "basic".to_owned(),
        None | Some(Value::Null) => String::new(),
        Some(value) => safe(to_text(value)),
    }
}

/// The metrics that rows have. Derived ones are about the whole column, and have no count.
fn metrics(column: &Column) -> Vec<&str> {
    let of_rows = |name: &&String| column.metrics.named_scores_count.contains_key(*name);
    let mut names: Vec<&str> =
        column.metrics.named_scores.keys().filter(of_rows).map(String::as_str).collect();
    // As a dictionary has them: a capital after its small letter.
    names.sort_by(|a, b| a.to_lowercase().cmp(&b.to_lowercase()).then_with(|| b.cmp(a)));
    names
}

fn row_cells(row: &Row, column: &Column, cells: &mut Vec<String>) {
    let output = row.response.as_ref().and_then(|response| response.output.as_ref());
    let text = output.map(|output| output.as_str().map_or_else(|| output.to_string(), str::to_owned));
    cells.push(safe(text.unwrap_or_default()));
    cells.push(row.verdict().to_owned());
    cells.push(number::with_cents(row.score));
    let rounded = |score: &Value| Some(number_value((score.as_f64()? * 100.0).round() / 100.0));
    let scores: Object =
        row.named_scores.iter().filter_map(|(name, score)| Some((name.clone(), rounded(score)?))).collect();
    cells.push(if scores.is_empty() { String::new() } else { Value::Object(scores).to_string() });
    for name in metrics(column) {
        let score = row.named_scores.get(name).and_then(Value::as_f64);
        cells.push(score.map(number::with_cents).unwrap_or_default());
    }
    let verdict = row.grading_result.as_ref();
    cells.push(safe(verdict.map(|verdict| verdict.reason.clone()).unwrap_or_default()));
    cells.push(safe(verdict.and_then(|verdict| verdict.comment.clone()).unwrap_or_default()));
}

/// A spreadsheet runs what looks like a formula; a quote before it keeps it text.
fn safe(cell: String) -> String {
    if crate::reading::env::is_on("PROMPTFOO_DISABLE_CSV_FORMULA_ESCAPING") {
        return cell;
    }
    let formula = match cell.trim_start().chars().next() {
        Some('=' | '@') => true,
        Some('+' | '-') => cell.trim().parse::<f64>().is_err(),
        _ => false,
    };
    if formula { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_text() {
        assert_eq!(safe("=1+1".to_owned()), "'=1+1");
        assert_eq!(safe("-5".to_owned()), "-5");
        assert_eq!(safe("-x".to_owned()), "'-x");
        assert_eq!(safe("plain".to_owned()), "plain");
    }
}
