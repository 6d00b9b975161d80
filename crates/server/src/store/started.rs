//! States after start commands, which builds have as snapshots with memory.

use std::collections::HashSet;

use sqlx::Row;

use super::Store;
use crate::Result;

/// Names of the snapshots that records of builds have. Rows are compared as text first: reading JSON takes longer.
const USED: &str = "SELECT json_extract(record, '$.started.snapshot') FROM template_builds WHERE record LIKE '%\"started\":{%'";

impl Store {
    /// The snapshots that builds of any template have for the state after their start command.
    pub(crate) async fn started_snapshots(&self) -> Result<HashSet<String>> {
        let rows = sqlx::query(USED).fetch_all(&self.read).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Noted snapshots that no build has: its build was deleted, came to nothing, or is in progress.
    pub(crate) async fn unused_started(&self) -> Result<Vec<String>> {
        let sql = format!("SELECT snapshot FROM unused_started WHERE snapshot NOT IN ({USED})");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&self.read).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Notes a snapshot before it is taken. It is deleted unless a build has it in the end.
    pub(crate) async fn note_started(&self, snapshot: &str) -> Result<()> {
        sqlx::query("INSERT OR IGNORE INTO unused_started (snapshot) VALUES ($1)")
            .bind(snapshot)
            .execute(&self.write)
            .await?;
        Ok(())
    }

    /// Forgets a snapshot that was deleted.
    pub(crate) async fn forget_started(&self, snapshot: &str) -> Result<()> {
        sqlx::query("DELETE FROM unused_started WHERE snapshot = $1")
            .bind(snapshot)
            .execute(&self.write)
            .await?;
        Ok(())
    }
}
