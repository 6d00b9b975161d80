//! `patch`: an answer that is a diff, judged by the tests of the repository it repairs.

use serde_json::json;

use super::diff::diff_of;
use super::error::Result;
use super::grade::{CaseResult, outcomes, verdict};
use super::run::shown;
use super::workspace::{Applied, PatchSettings, Workspace};
use crate::grading::GradingContext;
use crate::model::{GradingResult, Object};

/// Applies the answer's diff to a fresh copy of the repository and runs the tests. The score is the share that holds.
pub(super) async fn patch(context: &GradingContext<'_>) -> GradingResult {
    let settings = match PatchSettings::read(context.value, context.vars) {
        Ok(settings) => settings,
        Err(error) => return GradingResult::broken(error),
    };
    let Some(diff) = diff_of(context.output_text) else {
        let start: String = context.output_text.chars().take(300).collect();
        let mut code = Object::new();
        code.insert("problem".to_owned(), json!("no_patch_found"));
        return verdict(context, 0.0, false, format!("no diff was found in the answer: {start}"), code);
    };
    let mut workspace = match Workspace::open(context.workers.base(), context.sandboxes, settings).await {
        Ok(workspace) => workspace,
        Err(error) => return GradingResult::broken(error),
    };
    let judged = judge(context, &mut workspace, &diff).await;
    workspace.end().await;
    judged.unwrap_or_else(GradingResult::broken)
}

async fn judge(context: &GradingContext<'_>, workspace: &mut Workspace, diff: &str) -> Result<GradingResult> {
    let mut code = Object::new();
    code.insert("language".to_owned(), json!("diff"));
    code.insert("source".to_owned(), json!(shown(diff)));
    code.insert("before".to_owned(), json!(shown(&workspace.before().await?)));
    let way = match workspace.apply(diff).await? {
        Applied::By(way) => way,
        Applied::Not(why) => {
            code.insert("problem".to_owned(), json!("patch_does_not_apply"));
            return Ok(verdict(context, 0.0, false, format!("the patch does not apply: {why}"), code));
        }
    };
    code.insert("appliedBy".to_owned(), json!(way));
    let results = workspace.after().await.into_iter();
    let results: Vec<CaseResult> = results
        .map(|tested| CaseResult { name: tested.name, failure: tested.failure, execution: tested.execution })
        .collect();
    Ok(outcomes(context, code, "test", &results))
}
