//! Reports of stored red teams.

use sandcove_redteam::report::{About, Finding, Report, Skip};

use super::{Library, ViewError};
use crate::model::Evaluation;
use crate::redteam::finding;
use crate::store::StoreError;
use crate::store::recording::{Recorded, Which};

impl Library {
    /// Makes the report of the red team `id`, compared with the run before it.
    ///
    /// # Errors
    /// If no run has this id, the run is not a red team, or the database cannot be read.
    pub async fn red_team(&self, id: &str) -> Result<Report, ViewError> {
        let mut rows = self.recorded(id).await?;
        let evaluation = rows.evaluation().await?;
        let report = self.red_team_of(&evaluation, &mut rows, true).await?;
        // A red team that has just started has no attacks yet.
        let is_red_team = evaluation.config.get("redteam").is_some_and(|section| !section.is_null());
        match report.findings.is_empty() && !is_red_team {
            true => Err(ViewError::NoRedTeam(id.to_owned())),
            false => Ok(report),
        }
    }

    /// Makes the report of a run and its rows; `is_stored` says whether it is compared with the run before it.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn red_team_of(
        &self,
        evaluation: &Evaluation,
        rows: &mut Recorded,
        is_stored: bool,
    ) -> Result<Report, ViewError> {
        let section = evaluation.config.get("redteam").cloned().unwrap_or_default();
        let purpose = section["purpose"].as_str().unwrap_or_default().to_owned();
        let skipped: Vec<Skip> = serde_json::from_value(section["skipped"].clone()).unwrap_or_default();
        let about = About {
            eval_id: evaluation.id.clone(),
            created_at: evaluation.created_at.clone(),
            purpose,
            skipped,
        };
        let findings = findings(rows).await?;
        let before = if is_stored { self.red_team_before(evaluation).await? } else { None };
        Ok(Report::new(about, findings, before))
    }

    /// The findings of the newest red team before a run that attacked the same targets.
    async fn red_team_before(
        &self,
        evaluation: &Evaluation,
    ) -> Result<Option<(String, Vec<Finding>)>, ViewError> {
        let runs = self.runs(None, false).await?;
        let earlier = runs
            .into_iter()
            .filter(|run| run.is_redteam)
            .skip_while(|run| run.eval_id != evaluation.id)
            .skip(1);
        for run in earlier {
            let mut rows = self.recorded(&run.eval_id).await?;
            let known = rows.evaluation().await?;
            let attacked = |name: &str| evaluation.columns.iter().any(|column| column.provider == name);
            if known.columns.iter().any(|column| attacked(&column.provider)) {
                return Ok(Some((run.eval_id, findings(&mut rows).await?)));
            }
        }
        Ok(None)
    }

    async fn recorded(&self, id: &str) -> Result<Recorded, ViewError> {
        Recorded::open_in(&self.directory, Some(id)).await.map_err(|error| match error {
            StoreError::UnknownRun(id) => ViewError::NoRun(id),
            other => other.into(),
        })
    }
}

async fn findings(rows: &mut Recorded) -> Result<Vec<Finding>, ViewError> {
    let mut all = Vec::new();
    rows.each::<StoreError>(Which::All, |row| {
        all.extend(finding(&row));
        Ok(())
    })
    .await?;
    Ok(all)
}
