//! Lists: of runs, prompts, sets of tests, metadata; how scores spread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::PoisonError;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{Row as _, SqliteConnection};

use super::document::Document;
use super::{Library, ViewError, scan};
use crate::template::value::to_text;

/// Values that only the large part of a document has, cached by the id of the run.
pub type TestsOf = HashMap<String, Listed>;

/// The set of tests of a run, and who answered.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    /// Equal for equal tests.
    pub dataset: String,
    /// Ids of its providers.
    pub providers: Vec<String>,
    red_team: bool,
}

/// A run in the list.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// The id of the run.
    pub eval_id: String,
    /// Milliseconds since 1970 when it began.
    pub created_at: i64,
    /// The description.
    pub description: Option<String>,
    /// Tests with rows.
    pub num_tests: i64,
    /// Equal for runs of equal tests.
    pub dataset_id: String,
    /// Whether it looks for breaches.
    pub is_redteam: bool,
    /// The share of rows that passed, in percent.
    pub pass_rate: f64,
    /// The label in a list: description and id.
    pub label: String,
    /// The providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<Value>>,
    /// Rows that passed, failed and ended with errors.
    pub counts: [u64; 3],
}

impl Library {
    /// Lists the runs, newest first; only those of one set of tests if `dataset` is given.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn runs(&self, dataset: Option<&str>, providers: bool) -> Result<Vec<RunSummary>, ViewError> {
        let mut connection = self.open().await?;
        let rows = sqlx::query(
            "SELECT id, created_at, description, stats, \
             (SELECT COALESCE(MAX(test_idx) + 1, 0) FROM eval_rows WHERE eval_id = evals.id) FROM evals ORDER BY created_at DESC, id",
        )
        .fetch_all(&mut connection)
        .await?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in rows {
            let id: String = row.get(0);
            let listed = self.listed(&mut connection, &id).await?;
            if dataset.is_some_and(|wanted| wanted != listed.dataset) {
                continue;
            }
            let stats: Value = serde_json::from_str(row.get(3)).unwrap_or_default();
            let counts = ["successes", "failures", "errors"]
                .map(|key| stats.get(key).and_then(Value::as_u64).unwrap_or(0));
            let all: u64 = counts.iter().sum();
            let description: Option<String> = row.get(2);
            let id_and = |text: &String| format!("{text} ({id})");
            runs.push(RunSummary {
                label: description.as_ref().map_or_else(|| id.clone(), id_and),
                created_at: milliseconds(row.get(1)),
                description,
                num_tests: row.get(4),
                dataset_id: listed.dataset,
                is_redteam: listed.red_team,
                pass_rate: if all == 0 { 0.0 } else { counts[0] as f64 * 100.0 / all as f64 },
                providers: providers
                    .then(|| listed.providers.iter().map(|id| json!({"id": id, "label": null})).collect()),
                counts,
                eval_id: id,
            });
        }
        Ok(runs)
    }

    async fn listed(&self, connection: &mut SqliteConnection, id: &str) -> Result<Listed, ViewError> {
        let known = self.tests.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let row = sqlx::query(
            "SELECT COALESCE(head ->> '$.config.tests', ''), head ->> '$.results.prompts', head -> '$.config.redteam' IS NOT NULL \
             FROM evals WHERE id = ?",
        )
        .bind(id)
        .fetch_optional(connection)
        .await?
        .ok_or_else(|| ViewError::NoRun(id.to_owned()))?;
        let columns: Vec<Value> = row
            .get::<Option<&str>, _>(1)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let mut providers: Vec<String> = Vec::new();
        for provider in columns.iter().filter_map(|column| column.get("provider").and_then(Value::as_str)) {
            if !providers.iter().any(|known| known == provider) {
                providers.push(provider.to_owned());
            }
        }
        let digest = Sha256::digest(row.get::<&str, _>(0).as_bytes());
        let dataset = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let listed = Listed { dataset, providers, red_team: row.get(2) };
        let mut known = self.tests.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(id.to_owned(), listed.clone());
        Ok(listed)
    }

    /// The columns of all runs, the newest first: one entry for each run and column.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn history(
        &self,
        tag: Option<(&str, &str)>,
        description: Option<&str>,
    ) -> Result<Vec<Value>, ViewError> {
        let mut connection = self.open().await?;
        let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM evals ORDER BY created_at DESC, id")
            .fetch_all(&mut connection)
            .await?;
        let mut entries = Vec::new();
        for id in ids {
            let document = Document::read(&mut connection, &id).await?;
            let tags = document.whole.pointer("/config/tags").cloned().unwrap_or_default();
            let tagged = |(name, value): (&str, &str)| tags.get(name).map(to_text).as_deref() == Some(value);
            let named = |wanted: &str| document.description.as_deref() == Some(wanted);
            if !(tag.is_none_or(tagged) && description.is_none_or(named)) {
                continue;
            }
            let dataset = self.listed(&mut connection, &id).await?.dataset;
            entries.extend(document.prompts().into_iter().map(|column| {
                json!({
                    "evalId": id, "createdAt": milliseconds(&document.created_at), "description": document.description,
                    "datasetId": dataset, "provider": column.get("provider"), "label": column.get("label"), "raw": column.get("raw"),
                    "promptId": column.get("id"), "metrics": column.get("metrics"), "tags": tags,
                })
            }));
        }
        Ok(entries)
    }

    /// The prompts of all runs, the one used last first; of one set of tests if `dataset` is given.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn prompts(&self, dataset: Option<&str>) -> Result<Vec<Value>, ViewError> {
        let mut entries = self.history(None, None).await?;
        entries.retain(|entry| dataset.is_none_or(|wanted| entry["datasetId"] == wanted));
        Ok(grouped(
            entries,
            "promptId",
            |id, group| json!({"id": id, "prompt": {"raw": group[0]["raw"], "label": group[0]["label"]}, "evals": used(group)}),
        ))
    }

    /// The sets of tests of all runs, the one used last first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn datasets(&self) -> Result<Vec<Value>, ViewError> {
        let tests: HashMap<String, i64> =
            self.runs(None, false).await?.into_iter().map(|run| (run.eval_id, run.num_tests)).collect();
        Ok(grouped(self.history(None, None).await?, "datasetId", |id, group| {
            let run = group[0]["evalId"].as_str().unwrap_or_default();
            let prompts: BTreeSet<&str> =
                group.iter().filter_map(|entry| entry["promptId"].as_str()).collect();
            json!({"id": id, "numTests": tests.get(run), "prompts": prompts, "evals": used(group)})
        }))
    }

    /// The keys of metadata that rows have.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be read.
    pub async fn metadata_keys(&self, id: &str) -> Result<Vec<String>, ViewError> {
        let mut keys = BTreeSet::new();
        let mut connection = self.open().await?;
        Document::read(&mut connection, id).await?;
        scan::each(&mut connection, id, |_, row| {
            for (key, _) in row.all_metadata().filter(|(key, _)| !key.starts_with('_')) {
                if !keys.contains(key) {
                    keys.insert(key.clone());
                }
            }
        })
        .await?;
        Ok(keys.into_iter().collect())
    }

    /// The values that rows have for a key of metadata, at most a thousand.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be read.
    pub async fn metadata_values(&self, id: &str, key: &str) -> Result<Vec<String>, ViewError> {
        const MAX_VALUES: usize = 1000;
        let mut values = BTreeSet::new();
        let mut connection = self.open().await?;
        Document::read(&mut connection, id).await?;
        scan::each(&mut connection, id, |_, row| {
            if values.len() < MAX_VALUES {
                values.extend(
                    row.metadata(key).map(|value| to_text(value).chars().take(200).collect::<String>()),
                );
            }
        })
        .await?;
        Ok(values.into_iter().collect())
    }

    /// Counts the rows of each column by tenths of the score: eleven counts, the last for a score of 1 and more.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be read.
    pub async fn scores(&self, id: &str) -> Result<Vec<[usize; 11]>, ViewError> {
        let mut connection = self.open().await?;
        let columns = Document::read(&mut connection, id).await?.prompts().len();
        let mut counts = vec![[0; 11]; columns];
        scan::each(&mut connection, id, |_, row| {
            if let Some(count) = counts.get_mut(row.prompt_idx) {
                count[(row.score * 10.0 + 1e-9).clamp(0.0, 10.0) as usize] += 1;
            }
        })
        .await?;
        Ok(counts)
    }
}

/// Entries of the history with the same `key`, in the order of the newest of each.
fn grouped(entries: Vec<Value>, key: &str, show: impl Fn(&str, &[Value]) -> Value) -> Vec<Value> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in entries {
        let id = entry[key].as_str().unwrap_or_default().to_owned();
        if !groups.contains_key(&id) {
            order.push(id.clone());
        }
        groups.entry(id).or_default().push(entry);
    }
    let shown = |id: &String| {
        let group = groups.get(id)?;
        let mut value = show(id, group);
        value["recentEvalId"] = group[0]["evalId"].clone();
        value["recentEvalDate"] = group[0]["createdAt"].clone();
        value["count"] = json!(used(group).len());
        Some(value)
    };
    order.iter().filter_map(shown).collect()
}

/// Returns the runs that the entries of a group are from.
fn used(group: &[Value]) -> Vec<Value> {
    let mut runs: Vec<Value> = Vec::new();
    for entry in group {
        if runs.last().is_none_or(|last| last["id"] != entry["evalId"]) {
            runs.push(
                json!({"id": entry["evalId"], "datasetId": entry["datasetId"], "metrics": entry["metrics"]}),
            );
        }
    }
    runs
}

fn milliseconds(at: &str) -> i64 {
    at.parse::<jiff::Timestamp>().map(|at| at.as_millisecond()).unwrap_or_default()
}
