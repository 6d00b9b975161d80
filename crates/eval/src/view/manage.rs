//! Renaming, copying and deleting runs, and what can be run again.

use serde_json::{Value, json};
use sqlx::Connection;

use super::document::Document;
use super::{Library, ViewError};
use crate::model::{Evaluation, Object};

impl Library {
    /// Changes entries of the configuration that is shown with a run; its description is the run's name.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be written.
    pub async fn amend(&self, id: &str, config: Object) -> Result<(), ViewError> {
        let mut connection = self.open().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut document = Document::read(&mut transaction, id).await?;
        if let Some(name) = config.get("description") {
            document.description = name.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        }
        if let Some(shown) = document.whole.get_mut("config").and_then(Value::as_object_mut) {
            shown.extend(config);
        }
        document.write(&mut transaction).await?;
        transaction.commit().await?;
        self.changed();
        Ok(())
    }

    /// Sets the author of a run.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be written.
    pub async fn set_author(&self, id: &str, author: &str) -> Result<(), ViewError> {
        let mut connection = self.open().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut document = Document::read(&mut transaction, id).await?;
        document.whole["metadata"]["author"] = json!(author);
        document.write(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// Copies a run under a new id, and returns that with the number of its tests.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be written.
    pub async fn copy(&self, id: &str, description: Option<String>) -> Result<(String, i64), ViewError> {
        let mut connection = self.open().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let mut document = Document::read(&mut transaction, id).await?;
        let now = jiff::Timestamp::now();
        let copy = Evaluation::id_at(now);
        let name = document.description.as_deref().unwrap_or(id);
        document.description = Some(description.unwrap_or_else(|| format!("{name} (copy)")));
        document.whole["evalId"] = json!(copy);
        document.whole["config"]["description"] = json!(document.description);
        sqlx::query("INSERT INTO evals (id, created_at, description, stats, head) VALUES (?, ?, ?, ?, ?)")
            .bind(&copy)
            .bind(now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
            .bind(&document.description)
            .bind(document.stats.to_string())
            .bind(document.whole.to_string())
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO eval_rows (eval_id, test_idx, prompt_idx, success, row) \
             SELECT ?, test_idx, prompt_idx, success, row FROM eval_rows WHERE eval_id = ?",
        )
        .bind(&copy)
        .bind(id)
        .execute(&mut *transaction)
        .await?;
        let tests = sqlx::query_scalar("SELECT COUNT(DISTINCT test_idx) FROM eval_rows WHERE eval_id = ?")
            .bind(&copy)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok((copy, tests))
    }

    /// Whether a run can be run again: it was made here, so its options are stored with it. Imported runs and copies have none. Attacks are
    /// repeated by the command for red teams, which refuses to harm other hosts.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn is_repeatable(&self, id: &str) -> Result<bool, ViewError> {
        let mut connection = self.open().await?;
        let known = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM eval_runs WHERE eval_id = ?)");
        if !known.bind(id).fetch_one(&mut connection).await? {
            return Ok(false);
        }
        Ok(!Document::read(&mut connection, id).await?.is_redteam())
    }

    /// Deletes runs, all of them or none.
    ///
    /// # Errors
    /// When one does not exist, or the database cannot be written.
    pub async fn forget(&self, ids: &[String]) -> Result<(), ViewError> {
        let mut connection = self.open().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for id in ids {
            if !crate::store::forget(&mut transaction, id).await? {
                return Err(ViewError::NoRun(id.clone()));
            }
        }
        transaction.commit().await?;
        self.changed();
        Ok(())
    }
}
