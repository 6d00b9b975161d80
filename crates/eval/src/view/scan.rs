//! Looks at one row after the other.

use std::borrow::Cow;

use futures_util::TryStreamExt;
use serde::Deserialize;
use serde_json::Value;
use sqlx::{Row as _, SqliteConnection};

use super::ViewError;
use super::compare::{Answer, Partners};
use super::filter::{Mode, Query};
use crate::grading::aggregate::{add, add_tokens};
use crate::model::{Failure, Metrics, Object, TokenUsage};
use crate::template::value::to_text;

/// Comments that begin with this mark a row.
pub const HIGHLIGHT: &str = "!highlight";

/// The parts of a row that conditions look at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    pub prompt_idx: usize,
    pub success: bool,
    pub score: f64,
    pub failure_reason: Failure,
    pub vars: Object,
    pub named_scores: Object,
    latency_ms: f64,
    cost: Option<f64>,
    token_usage: Option<TokenUsage>,
    metadata: Object,
    description: Option<String>,
    error: Option<String>,
    response: Option<Response>,
    grading_result: Option<Verdict>,
    test_case: Test,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    output: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Test {
    metadata: Object,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Verdict {
    reason: Option<String>,
    comment: Option<String>,
    component_results: Option<Vec<ComponentResult>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ComponentResult {
    pass: bool,
    reason: Option<String>,
    assertion: Option<Value>,
}

/// The type of what a person decided.
pub const HUMAN: &str = "human";

impl Seen {
    /// The answer, or why there is none.
    pub fn text(&self) -> Cow<'_, str> {
        match self.response.as_ref().and_then(|response| response.output.as_ref()) {
            Some(Value::String(text)) => Cow::Borrowed(text),
            Some(other) => Cow::Owned(other.to_string()),
            None => Cow::Borrowed(self.error.as_deref().unwrap_or_default()),
        }
    }

    /// Every text that a search looks at.
    pub fn texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let verdict = self.grading_result.iter();
        let said = verdict.flat_map(|verdict| {
            let parts = verdict.component_results.iter().flatten().filter_map(|part| part.reason.as_deref());
            verdict.reason.as_deref().into_iter().chain(verdict.comment.as_deref()).chain(parts)
        });
        let own = [self.description.as_deref(), self.error.as_deref()].into_iter().flatten();
        let vars = self.vars.values().map(|value| Cow::Owned(to_text(value)));
        std::iter::once(self.text()).chain(vars).chain(own.chain(said).map(Cow::Borrowed))
    }

    /// Returns the metadata of the answer or the test.
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key).or_else(|| self.test_case.metadata.get(key)).filter(|value| !value.is_null())
    }

    /// Everything the answer and the test tell beside.
    pub fn all_metadata(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.metadata.iter().chain(&self.test_case.metadata)
    }

    /// Whether somebody marked it.
    pub fn is_highlighted(&self) -> bool {
        let comment = self.grading_result.as_ref().and_then(|verdict| verdict.comment.as_deref());
        comment.is_some_and(|comment| comment.starts_with(HIGHLIGHT))
    }

    /// Whether somebody judged it.
    pub fn is_rated(&self) -> bool {
        self.parts().any(|part| {
            part.assertion.as_ref().and_then(|assertion| assertion.get("type")).and_then(Value::as_str)
                == Some(HUMAN)
        })
    }

    fn parts(&self) -> impl Iterator<Item = &ComponentResult> {
        self.grading_result.iter().flat_map(|verdict| verdict.component_results.iter().flatten())
    }

    fn add_to(&self, sums: &mut Metrics) {
        *match (self.success, self.failure_reason) {
            (true, _) => &mut sums.test_pass_count,
            (false, Failure::Error) => &mut sums.test_error_count,
            (false, _) => &mut sums.test_fail_count,
        } += 1;
        sums.score += self.score;
        sums.total_latency_ms += self.latency_ms;
        sums.cost += self.cost.unwrap_or(0.0);
        sums.unknown_cost_count += usize::from(self.cost.is_none());
        let (passed, failed): (Vec<&ComponentResult>, Vec<&ComponentResult>) =
            self.parts().partition(|part| part.pass);
        sums.assert_pass_count += passed.len();
        sums.assert_fail_count += failed.len();
        if let Some(usage) = &self.token_usage {
            add_tokens(&mut sums.token_usage, usage);
        }
        for (name, score) in &self.named_scores {
            add(&mut sums.named_scores, name, score.as_f64().unwrap_or(0.0));
            add(&mut sums.named_scores_count, name, 1.0);
        }
    }
}

/// The tests that answer a question.
#[derive(Debug, Default)]
pub struct Found {
    /// In their order.
    pub tests: Vec<i64>,
    /// Sums over the rows of those tests, by column.
    pub sums: Vec<Metrics>,
}

/// Passes every row of a run to `see`, by test, then by column.
pub async fn each(
    connection: &mut SqliteConnection,
    id: &str,
    mut see: impl FnMut(i64, Seen),
) -> Result<(), ViewError> {
    let mut rows =
        sqlx::query("SELECT test_idx, row FROM eval_rows WHERE eval_id = ? ORDER BY test_idx, prompt_idx")
            .bind(id)
            .fetch(connection);
    while let Some(row) = rows.try_next().await? {
        see(row.get(0), serde_json::from_str(row.get::<&str, _>(1)).unwrap_or_default());
    }
    Ok(())
}

/// Answers a question. A test is an answer if one of its rows is.
pub async fn find(
    connection: &mut SqliteConnection,
    id: &str,
    columns: usize,
    question: &Query,
    partners: &[Partners],
) -> Result<Found, ViewError> {
    let mut found = Found { tests: Vec::new(), sums: vec![Metrics::default(); columns] };
    let mut group: Vec<Seen> = Vec::new();
    let mut at = 0;
    let mut end = |test: i64, group: &mut Vec<Seen>| {
        let compared = |row: &Seen| match question.mode {
            Mode::NewlyFailing => partners.iter().any(|other| other.passed(test, row)),
            _ => true,
        };
        let differs = || differ(group, partners.iter().map(|other| other.answers(test, &group[0])));
        if group.iter().any(|row| question.holds(row) && compared(row))
            && (question.mode != Mode::Different || differs())
        {
            found.tests.push(test);
            for row in group.iter() {
                if let Some(sums) = found.sums.get_mut(row.prompt_idx) {
                    row.add_to(sums);
                }
            }
        }
        group.clear();
    };
    each(connection, id, |test, row| {
        if test != at && !group.is_empty() {
            end(at, &mut group);
        }
        at = test;
        group.push(row);
    })
    .await?;
    if !group.is_empty() {
        end(at, &mut group);
    }
    Ok(found)
}

fn differ<'a>(rows: &[Seen], others: impl Iterator<Item = &'a [Answer]>) -> bool {
    let own = rows.iter().map(|row| super::compare::digest(&row.text()));
    let mut all = own.chain(others.flatten().map(|answer| answer.digest));
    all.next().is_some_and(|first| all.any(|other| other != first))
}
