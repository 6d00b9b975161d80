//! One row: all of it, and what a person thinks of it.

use serde_json::{Value, json};
use sqlx::{Connection, Row as _, SqliteConnection};

use super::document::Document;
use super::scan::HUMAN;
use super::{Library, ViewError};
use crate::model::{Failure, GradingResult, Metrics, Row, Stats, number_value};

impl Library {
    /// The JSON of a row, by its id or its place as in `12.0`: the test, then the column.
    ///
    /// # Errors
    /// When there is none, or the database cannot be read.
    pub async fn row(&self, id: &str, key: &str) -> Result<String, ViewError> {
        let mut connection = self.open().await?;
        Ok(find(&mut connection, id, key).await?.2)
    }

    /// Replaces the verdict of a row, updates the sums, and returns the row.
    ///
    /// # Errors
    /// When there is no such row, or the database cannot be written.
    pub async fn rate(&self, id: &str, key: &str, verdict: GradingResult) -> Result<Row, ViewError> {
        let mut connection = self.open().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut document = Document::read(&mut transaction, id).await?;
        let (test, column, text) = find(&mut transaction, id, key).await?;
        let before: Row = serde_json::from_str(&text).map_err(|error| ViewError::DamagedRow {
            run: id.to_owned(),
            row: key.to_owned(),
            error,
        })?;
        let after = judged(&before, verdict);
        sqlx::query(
            "UPDATE eval_rows SET success = ?, row = ? WHERE eval_id = ? AND test_idx = ? AND prompt_idx = ?",
        )
        .bind(after.success)
        .bind(serde_json::to_string(&after).unwrap_or(text))
        .bind(id)
        .bind(test)
        .bind(column)
        .execute(&mut *transaction)
        .await?;
        if let Some(metrics) = document.whole.pointer_mut(&format!("/results/prompts/{column}/metrics")) {
            let mut sums: Metrics = serde_json::from_value(metrics.clone()).unwrap_or_default();
            add_up_anew(&mut sums, &before, &after);
            *metrics = json!(sums);
        }
        let mut stats: Stats = serde_json::from_value(document.stats.clone()).unwrap_or_default();
        *of_kind(&before, &mut stats) = of_kind(&before, &mut stats).saturating_sub(1);
        *of_kind(&after, &mut stats) += 1;
        document.stats = json!(stats);
        if let Some(shown) = document.whole.pointer_mut("/results/stats") {
            *shown = document.stats.clone();
        }
        document.write(&mut transaction).await?;
        transaction.commit().await?;
        self.changed();
        Ok(after)
    }
}

/// The row's place and JSON.
async fn find(
    connection: &mut SqliteConnection,
    id: &str,
    key: &str,
) -> Result<(i64, i64, String), ViewError> {
    let place = key
        .split_once('.')
        .and_then(|(test, column)| Some((test.parse::<i64>().ok()?, column.parse::<i64>().ok()?)));
    let query = match place {
        Some((test, column)) => {
            sqlx::query("SELECT test_idx, prompt_idx, row FROM eval_rows WHERE eval_id = ? AND test_idx = ? AND prompt_idx = ?")
                .bind(id)
                .bind(test)
                .bind(column)
        }
        // Looking for the text first spares reading most rows as JSON.
        None => sqlx::query(
            "SELECT test_idx, prompt_idx, row FROM eval_rows WHERE eval_id = ?1 AND instr(row, ?2) AND row ->> '$.id' = ?2 LIMIT 1",
        )
        .bind(id)
        .bind(key),
    };
    let row = query.fetch_optional(connection).await?;
    let row = row.ok_or_else(|| ViewError::NoRow { run: id.to_owned(), row: key.to_owned() })?;
    Ok((row.get(0), row.get(1), row.get(2)))
}

fn judged(before: &Row, verdict: GradingResult) -> Row {
    let mut row = before.clone();
    row.success = verdict.pass;
    row.score = verdict.score;
    if let Some(scores) = &verdict.named_scores {
        row.named_scores.clone_from(scores);
    }
    let by_human = verdict.component_results.iter().flatten().any(|part| {
        part.assertion.as_ref().and_then(|assertion| assertion.get("type")).and_then(Value::as_str)
            == Some(HUMAN)
    });
    let answered = before.response.as_ref().is_some_and(|response| response.output.is_some());
    row.failure_reason = match verdict.pass {
        true => Failure::None,
        // Without an answer it is an error again when nobody says otherwise any more.
        false if !by_human && (before.failure_reason == Failure::Error || !answered) => Failure::Error,
        false => Failure::Assertion,
    };
    if answered && row.failure_reason != Failure::Error {
        row.error = (!verdict.pass).then(|| verdict.reason.clone());
    }
    row.grading_result = Some(verdict);
    row
}

fn of_kind<'a>(row: &Row, stats: &'a mut Stats) -> &'a mut usize {
    match (row.success, row.failure_reason) {
        (true, _) => &mut stats.successes,
        (false, Failure::Error) => &mut stats.errors,
        (false, _) => &mut stats.failures,
    }
}

fn add_up_anew(sums: &mut Metrics, before: &Row, after: &Row) {
    let mut stats = Stats {
        successes: sums.test_pass_count,
        failures: sums.test_fail_count,
        errors: sums.test_error_count,
        ..Stats::default()
    };
    *of_kind(before, &mut stats) = of_kind(before, &mut stats).saturating_sub(1);
    *of_kind(after, &mut stats) += 1;
    (sums.test_pass_count, sums.test_fail_count, sums.test_error_count) =
        (stats.successes, stats.failures, stats.errors);
    sums.score += after.score - before.score;
    let parts = |row: &Row, pass: bool| {
        let parts = row.grading_result.iter().flat_map(|verdict| verdict.component_results.iter().flatten());
        parts.filter(|part| part.pass == pass).count()
    };
    let again = |sum: usize, pass| (sum + parts(after, pass)).saturating_sub(parts(before, pass));
    sums.assert_pass_count = again(sums.assert_pass_count, true);
    sums.assert_fail_count = again(sums.assert_fail_count, false);
    for (name, score) in &after.named_scores {
        let old = before.named_scores.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        let change = score.as_f64().unwrap_or(0.0) - old;
        if change != 0.0
            && let Some(sum) = sums.named_scores.get_mut(name)
        {
            *sum = number_value(sum.as_f64().unwrap_or(0.0) + change);
        }
    }
}
