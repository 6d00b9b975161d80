//! One page of the table of a run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::TryStreamExt;
use serde_json::{Value, json};
use sqlx::{QueryBuilder, Row as _, SqliteConnection};

use super::compare::{self, Partners};
use super::document::Document;
use super::filter::Query;
use super::scan::{self, Found};
use super::{Library, ViewError};
use crate::model::Row;
use crate::template::value;

/// A page of the table of a run.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// The conditions on rows.
    pub query: Query,
    /// The conditions as text, equal for equal conditions.
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
    pub async fn page(&self, id: &str, wanted: &PageRequest) -> Result<Value, ViewError> {
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
        let (tests, filtered, sums) = if wanted.query.is_all() {
            (tests(&mut connection, id, wanted).await?, total, Value::Null)
        } else {
            let found = self.found(&mut connection, id, own_columns, wanted, &beside).await?;
            let page = found.tests.iter().copied().skip(wanted.offset).take(wanted.limit).collect();
            (page, found.tests.len() as i64, json!(found.sums))
        };
        let names = document.vars();
        let mut lines: Vec<Line> = tests.iter().map(|test| Line::new(*test, own_columns)).collect();
        let places: HashMap<i64, usize> = tests.iter().enumerate().map(|(at, test)| (*test, at)).collect();
        each(&mut connection, id, &tests, |test, row| {
            if let Some(line) = places.get(&test).and_then(|at| lines.get_mut(*at)) {
                line.put(&row, &names, wanted.brief);
            }
        })
        .await?;
        for other in &beside {
            let columns = Document::read(&mut connection, &other.id).await?.prompts();
            add_beside(&mut connection, other, &mut lines, columns.len(), wanted.brief).await?;
            prompts.extend(columns.into_iter().map(|column| labelled(column, &other.id)));
        }
        let body: Vec<Value> = lines.into_iter().map(Line::into_json).collect();
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
            "isRedteam": document.is_redteam(),
            "author": document.whole.pointer("/metadata/author"),
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
        wanted: &PageRequest,
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
        wanted: &PageRequest,
        beside: &[Partners],
    ) -> Result<Arc<Found>, ViewError> {
        let asked = format!("{id} {:?} {}", wanted.beside, wanted.asked);
        if let Some(found) = self.remembered(&asked) {
            return Ok(found);
        }
        let as_of = self.changes.load(Ordering::Relaxed);
        let found = Arc::new(scan::find(connection, id, columns, &wanted.query, beside).await?);
        self.remember(asked, &found, as_of);
        Ok(found)
    }
}

/// Counts the tests that have rows.
async fn count(connection: &mut SqliteConnection, id: &str) -> Result<i64, ViewError> {
    Ok(sqlx::query_scalar("SELECT COUNT(DISTINCT test_idx) FROM eval_rows WHERE eval_id = ?")
        .bind(id)
        .fetch_one(connection)
        .await?)
}

async fn tests(
    connection: &mut SqliteConnection,
    id: &str,
    wanted: &PageRequest,
) -> Result<Vec<i64>, ViewError> {
    Ok(sqlx::query_scalar(
        "SELECT DISTINCT test_idx FROM eval_rows WHERE eval_id = ? ORDER BY test_idx LIMIT ? OFFSET ?",
    )
    .bind(id)
    .bind(wanted.limit as i64)
    .bind(wanted.offset as i64)
    .fetch_all(connection)
    .await?)
}

/// Passes the rows of tests to `each` one after the other, because each may be large.
async fn each(
    connection: &mut SqliteConnection,
    id: &str,
    tests: &[i64],
    mut see: impl FnMut(i64, Row),
) -> Result<(), ViewError> {
    if tests.is_empty() {
        return Ok(());
    }
    let mut query = QueryBuilder::new("SELECT test_idx, row FROM eval_rows WHERE eval_id = ");
    query.push_bind(id).push(" AND test_idx IN (");
    let mut list = query.separated(", ");
    for test in tests {
        list.push_bind(*test);
    }
    query.push(") ORDER BY test_idx, prompt_idx");
    let mut rows = query.build().persistent(false).fetch(connection);
    while let Some(row) = rows.try_next().await? {
        see(row.get(0), serde_json::from_str(row.get::<&str, _>(1)).unwrap_or_default());
    }
    Ok(())
}

/// The other run's columns of the same tests.
async fn add_beside(
    connection: &mut SqliteConnection,
    other: &Partners,
    lines: &mut [Line],
    columns: usize,
    brief: Option<usize>,
) -> Result<(), ViewError> {
    // Several tests may have the same partner: repeats, where the other run has none.
    let mut places: HashMap<i64, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter_mut().enumerate() {
        if let Some(partner) = line.about.and_then(|about| other.of(line.test, about)) {
            places.entry(partner).or_default().push(at);
        }
        line.cells.resize(line.cells.len() + columns, Value::Null);
    }
    let tests: Vec<i64> = places.keys().copied().collect();
    each(connection, &other.id, &tests, |test, row| {
        let mut cell = output(&row, brief);
        cell["evalId"] = json!(other.id);
        for at in places.get(&test).into_iter().flatten() {
            let start = lines[*at].cells.len() - columns;
            if let Some(place) = lines[*at].cells.get_mut(start + row.prompt_idx) {
                place.clone_from(&cell);
            }
        }
    })
    .await
}

/// A column of another run says of which.
fn labelled(mut column: Value, id: &str) -> Value {
    let label = column.get("label").and_then(Value::as_str).unwrap_or_default();
    column["label"] = json!(format!("[{id}] {label}"));
    column["evalId"] = json!(id);
    column
}

/// A test and its rows, as they are shown.
struct Line {
    test: i64,
    /// A digest of the test, by which it is found in another run.
    about: Option<u64>,
    shown: Value,
    cells: Vec<Value>,
}

impl Line {
    fn new(test: i64, columns: usize) -> Self {
        Self { test, about: None, shown: json!({"testIdx": test}), cells: vec![Value::Null; columns] }
    }

    fn put(&mut self, row: &Row, names: &[String], brief: Option<usize>) {
        if self.about.is_none() {
            self.about = Some(compare::about(&row.vars));
            let cut = |text: String| match brief {
                Some(most) => text.chars().take(most).collect(),
                None => text,
            };
            let var = |name| row.vars.get(name).map(|value| cut(value::shown(value))).unwrap_or_default();
            self.shown["description"] = json!(row.description);
            self.shown["vars"] = names.iter().map(var).collect();
            if brief.is_none() {
                self.shown["test"] = json!(row.test_case);
            }
        }
        if let Some(cell) = self.cells.get_mut(row.prompt_idx) {
            *cell = output(row, brief);
        }
    }

    fn into_json(mut self) -> Value {
        self.shown["outputs"] = Value::Array(self.cells);
        self.shown
    }
}

/// A row as a cell of the table.
fn output(row: &Row, brief: Option<usize>) -> Value {
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
