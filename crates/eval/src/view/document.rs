//! What a run says of itself, without its rows.

use serde_json::Value;
use sqlx::{Row as _, SqliteConnection};

use super::ViewError;
use crate::model::Column;

/// The result document of a run, its rows left out.
#[derive(Debug)]
pub struct Document {
    /// The id of the run.
    pub id: String,
    /// When it began.
    pub created_at: String,
    /// The description.
    pub description: Option<String>,
    /// The sums over all rows.
    pub stats: Value,
    /// The document without rows.
    pub whole: Value,
}

impl Document {
    /// Reads the document of a run.
    pub async fn read(connection: &mut SqliteConnection, id: &str) -> Result<Self, ViewError> {
        let row = sqlx::query("SELECT created_at, description, stats, head FROM evals WHERE id = ?")
            .bind(id)
            .fetch_optional(connection)
            .await?
            .ok_or_else(|| ViewError::NoRun(id.to_owned()))?;
        let json = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
        Ok(Self {
            id: id.to_owned(),
            created_at: row.get(0),
            description: row.get(1),
            stats: json(row.get(2)),
            whole: json(row.get(3)),
        })
    }

    /// Returns the columns as JSON.
    pub fn prompts(&self) -> Vec<Value> {
        self.whole.pointer("/results/prompts").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// Returns the columns.
    pub fn columns(&self) -> Vec<Column> {
        let read = |column| serde_json::from_value(column).unwrap_or_default();
        self.prompts().into_iter().map(read).collect()
    }

    /// The names of its variables.
    pub fn vars(&self) -> Vec<String> {
        let names = self.whole.get("vars").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether it attacked something.
    pub fn is_redteam(&self) -> bool {
        self.whole.pointer("/config/redteam").is_some_and(|section| !section.is_null())
    }

    /// Writes it back with what was changed of it.
    pub async fn write(&self, connection: &mut SqliteConnection) -> Result<(), ViewError> {
        sqlx::query("UPDATE evals SET description = ?, stats = ?, head = ? WHERE id = ?")
            .bind(&self.description)
            .bind(self.stats.to_string())
            .bind(self.whole.to_string())
            .bind(&self.id)
            .execute(connection)
            .await?;
        Ok(())
    }
}
