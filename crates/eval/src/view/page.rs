//! One page of the table of a run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sqlx::{QueryBuilder, Row as _, SqliteConnection};

use super::compare::Partners;
use super::document::Document;
use super::filter::Question;
use super::scan::{self, Found};
use super::{Library, ViewError};
use crate::model::{Object, Row};
use crate::template::value::to_text;

/// Which page.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Which rows.
    pub question: Question,
    /// The question in words: equal for equal questions.
    pub asked: String,
    /// Tests on a page.
    pub limit: usize,
    /// Tests before it.
    pub offset: usize,
    /// Runs whose columns are shown beside.
    pub beside: Vec<String>,
    /// The most characters of a text, and no more of a row than a table shows; everything without.
    pub brief: Option<usize>,
}

impl Library {
    /// The page, in the keys of the API: `table`, `totalCount`, `filteredCount`, `filteredMetrics`, and what the run is.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be read.
    pub async fn page(&self, id: &str, wanted: &Wanted) -> Result<Value, ViewError> {
        let mut connection = self.open().await?;
        let document = Document::read(&mut connection, id).await?;
        let mut prompts = document.prompts();
        let own_columns = prompts.len();
        let total = count(&mut connection, id).await?;
        let beside = if wanted.beside.is_empty() {
            Vec::new()
        } else {
            self.partners(&mut connection, wanted).await?
        };
        let (tests, filtered, sums) = if wanted.question.is_all() {
            (tests(&mut connection, id, wanted).await?, total, Value::Null)
        } else {
            let found = self.found(&mut connection, id, own_columns, wanted, &beside).await?;
            let page = found.tests.iter().copied().skip(wanted.offset).take(wanted.limit).collect();
            (page, found.tests.len() as i64, json!(found.sums))
        };
        let rows = rows(&mut connection, id, &tests).await?;
        let mut lines: Vec<Line> = tests.iter().map(|test| Line::new(*test, own_columns)).collect();
        let places: HashMap<i64, usize> = tests.iter().enumerate().map(|(at, test)| (*test, at)).collect();
        for (test, row) in rows {
            if let Some(line) = places.get(&test).and_then(|at| lines.get_mut(*at)) {
                line.put(row);
            }
        }
        for other in &beside {
            let columns = Document::read(&mut connection, &other.id).await?.prompts();
            add_beside(&mut connection, other, &mut lines, columns.len()).await?;
            prompts.extend(columns.into_iter().map(|column| labelled(column, &other.id)));
        }
        let names = document.vars();
        let body: Vec<Value> = lines.iter().map(|line| line.to_json(&names, wanted.brief)).collect();
        let mut config = document.whole.get("config").cloned().unwrap_or_default();
        if wanted.brief.is_some() {
            // Its tests may be as large as all rows.
            config = json!({"description": document.description, "tags": config.get("tags")});
        }
        Ok(json!({
            "table": {"head": {"prompts": prompts, "vars": names}, "body": body},
            "totalCount": total,
            "filteredCount": filtered,
            "filteredMetrics": sums,
            "config": config,
            "author": null,
            "version": 4,
            "id": id,
            "createdAt": document.created_at,
            "description": document.description,
            "stats": document.stats,
        }))
    }

    async fn partners(
        &self,
        connection: &mut SqliteConnection,
        wanted: &Wanted,
    ) -> Result<Vec<Partners>, ViewError> {
        let mut all = Vec::new();
        for id in &wanted.beside {
            all.push(Partners::read(connection, id).await?);
        }
        Ok(all)
    }

    async fn found(
        &self,
        connection: &mut SqliteConnection,
        id: &str,
        columns: usize,
        wanted: &Wanted,
        beside: &[Partners],
    ) -> Result<Arc<Found>, ViewError> {
        let asked = format!("{id} {:?} {}", wanted.beside, wanted.asked);
        if let Some(found) = self.remembered(&asked) {
            return Ok(found);
        }
        let as_of = self.changes.load(Ordering::Relaxed);
        let found = Arc::new(scan::find(connection, id, columns, &wanted.question, beside).await?);
        self.remember(asked, &found, as_of);
        Ok(found)
    }
}

/// How many tests have rows.
async fn count(connection: &mut SqliteConnection, id: &str) -> Result<i64, ViewError> {
    Ok(sqlx::query_scalar("SELECT COUNT(DISTINCT test_idx) FROM eval_rows WHERE eval_id = ?")
        .bind(id)
        .fetch_one(connection)
        .await?)
}

async fn tests(connection: &mut SqliteConnection, id: &str, wanted: &Wanted) -> Result<Vec<i64>, ViewError> {
    Ok(sqlx::query_scalar(
        "SELECT DISTINCT test_idx FROM eval_rows WHERE eval_id = ? ORDER BY test_idx LIMIT ? OFFSET ?",
    )
    .bind(id)
    .bind(wanted.limit as i64)
    .bind(wanted.offset as i64)
    .fetch_all(connection)
    .await?)
}

async fn rows(
    connection: &mut SqliteConnection,
    id: &str,
    tests: &[i64],
) -> Result<Vec<(i64, Row)>, ViewError> {
    if tests.is_empty() {
        return Ok(Vec::new());
    }
    let mut query = QueryBuilder::new("SELECT test_idx, row FROM eval_rows WHERE eval_id = ");
    query.push_bind(id).push(" AND test_idx IN (");
    let mut list = query.separated(", ");
    for test in tests {
        list.push_bind(*test);
    }
    query.push(") ORDER BY test_idx, prompt_idx");
    let rows = query.build().persistent(false).fetch_all(connection).await?;
    let read = |row: &sqlx::sqlite::SqliteRow| {
        (row.get(0), serde_json::from_str(row.get::<&str, _>(1)).unwrap_or_default())
    };
    Ok(rows.iter().map(read).collect())
}

/// The other run's columns of the same tests.
async fn add_beside(
    connection: &mut SqliteConnection,
    other: &Partners,
    lines: &mut [Line],
    columns: usize,
) -> Result<(), ViewError> {
    let empty = Object::new();
    let partner: Vec<Option<i64>> =
        lines.iter().map(|line| other.of(line.test, line.first().map_or(&empty, |row| &row.vars))).collect();
    let wanted: Vec<i64> = partner.iter().copied().flatten().collect();
    let found = rows(connection, &other.id, &wanted).await?;
    for (line, partner) in lines.iter_mut().zip(partner) {
        let start = line.cells.len();
        line.cells.resize_with(start + columns, || None);
        for (_, row) in found.iter().filter(|(test, _)| Some(*test) == partner) {
            if row.prompt_idx < columns {
                line.cells[start + row.prompt_idx] = Some((other.id.clone(), row.clone()));
            }
        }
    }
    Ok(())
}

/// A column of another run says of which.
fn labelled(mut column: Value, id: &str) -> Value {
    let label = column.get("label").and_then(Value::as_str).unwrap_or_default();
    column["label"] = json!(format!("[{id}] {label}"));
    column["evalId"] = json!(id);
    column
}

/// A test and its rows; those of other runs with the run's id.
struct Line {
    test: i64,
    cells: Vec<Option<(String, Row)>>,
}

impl Line {
    fn new(test: i64, columns: usize) -> Self {
        Self { test, cells: std::iter::repeat_with(|| None).take(columns).collect() }
    }

    fn put(&mut self, row: Row) {
        if let Some(cell) = self.cells.get_mut(row.prompt_idx) {
            *cell = Some((String::new(), row));
        }
    }

    fn first(&self) -> Option<&Row> {
        self.cells.iter().flatten().next().map(|(_, row)| row)
    }

    fn to_json(&self, names: &[String], brief: Option<usize>) -> Value {
        let cut =
            |text: &str| brief.map_or_else(|| text.to_owned(), |most| text.chars().take(most).collect());
        let first = self.first();
        let vars: Vec<String> = names
            .iter()
            .map(|name| {
                first.and_then(|row| row.vars.get(name)).map(|value| cut(&to_text(value))).unwrap_or_default()
            })
            .collect();
        let outputs: Vec<Value> = self
            .cells
            .iter()
            .map(|cell| cell.as_ref().map_or(Value::Null, |(run, row)| output(run, row, brief)))
            .collect();
        let mut line = json!({
            "description": first.and_then(|row| row.description.as_deref()),
            "outputs": outputs,
            "vars": vars,
            "testIdx": self.test,
        });
        if brief.is_none() {
            line["test"] = json!(first.map(|row| &row.test_case));
        }
        line
    }
}

/// A row as a cell of the table.
fn output(run: &str, row: &Row, brief: Option<usize>) -> Value {
    let answer = row.response.as_ref().and_then(|response| response.output.as_ref());
    let text = match answer {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => row.error.clone().unwrap_or_default(),
    };
    let mut cell = json!({
        "id": row.id,
        "testIdx": row.test_idx,
        "promptIdx": row.prompt_idx,
        "pass": row.success,
        "score": row.score,
        "failureReason": row.failure_reason,
        "latencyMs": row.latency_ms,
        "cost": row.cost,
        "namedScores": row.named_scores,
        "tokenUsage": row.token_usage,
        "provider": if row.provider.label.is_empty() { &row.provider.id } else { &row.provider.label },
    });
    if !run.is_empty() {
        cell["evalId"] = json!(run);
    }
    let Some(most) = brief else {
        cell["text"] = json!(text);
        cell["prompt"] = json!(row.prompt.raw);
        cell["error"] = json!(row.error);
        cell["gradingResult"] = json!(row.grading_result);
        cell["metadata"] = json!(row.metadata);
        cell["response"] = json!(row.response);
        cell["testCase"] = json!(row.test_case);
        return cell;
    };
    let cut = |text: &str| text.chars().take(most).collect::<String>();
    cell["text"] = json!(cut(&text));
    cell["cut"] = json!(text.chars().nth(most).is_some());
    cell["error"] = json!(row.error.as_deref().filter(|_| !row.success).map(cut));
    let parts = || row.grading_result.iter().flat_map(|verdict| verdict.component_results.iter().flatten());
    cell["passed"] = json!(parts().filter(|part| part.pass).count());
    cell["assertions"] = json!(parts().count());
    cell["comment"] =
        json!(row.grading_result.as_ref().and_then(|verdict| verdict.comment.as_deref()).map(cut));
    let human = parts().rfind(|part| {
        part.assertion.as_ref().and_then(|assertion| assertion.get("type")).and_then(Value::as_str)
            == Some(scan::HUMAN)
    });
    cell["rated"] = json!(human.map(|part| part.pass));
    cell
}
