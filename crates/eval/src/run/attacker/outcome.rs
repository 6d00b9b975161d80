//! What came of an attack: the answer of the row, and the metadata by which reports and viewers tell its course.

use sandcove_redteam::report::Verdict;
use serde_json::{Value, json};

use super::{Attack, Try};
use crate::model::{Object, ProviderResponse};
use crate::redteam::{self, Ruling};
use crate::run::error::RowError;

impl Attack<'_, '_> {
    /// The answer of the row: that of the first success, else of the message that got furthest, else of the last.
    pub(super) fn response(self, stop: &str) -> Result<ProviderResponse, RowError> {
        let successes: Vec<usize> = (0..self.tries.len()).filter(|at| self.tries[*at].is_success()).collect();
        let furthest = (0..self.tries.len()).max_by(|a, b| {
            // Of equals in a conversation the last, and of attempts the first.
            let order = self.tries[*a].rating.total_cmp(&self.tries[*b].rating);
            if self.by.talks { order.then(a.cmp(b)) } else { order.then(b.cmp(a)) }
        });
        let Some(shown) = successes.first().copied().or(furthest) else {
            return Err(RowError::NoAttack);
        };
        let mut metadata = Object::new();
        let mut add = |key: &str, value: Value| drop(metadata.insert(key.to_owned(), value));
        let attacks = successes.iter().map(|at| {
            let each = &self.tries[*at];
            json!({"turn": at + 1, "prompt": each.message, "response": each.output})
        });
        add("redteamFinalPrompt", json!(self.tries[shown].message));
        add("stopReason", json!(stop));
        add("successfulAttacks", attacks.collect());
        add("totalSuccessfulAttacks", json!(successes.len()));
        let key = if self.by.branches > 1 { "redteamTreeHistory" } else { "redteamHistory" };
        add(key, self.tries.iter().enumerate().map(|(at, each)| self.history(at, each)).collect());
        if self.by.talks {
            let name = &self.by.provider;
            add("messages", json!(self.messages));
            add(&format!("{name}RoundsCompleted"), json!(self.rounds));
            add(&format!("{name}BacktrackCount"), json!(self.backtracks));
            add("sessionId", self.talk.vars.get("sessionId").cloned().unwrap_or_default());
        } else {
            add("finalIteration", json!(self.tries.len()));
            add("highestScore", json!(self.tries[shown].rating));
            add("sessionIds", json!(self.sessions));
        }
        let chosen = &self.tries[shown];
        if let Some(verdict) = &chosen.verdict {
            let facts = json!({"pass": verdict.pass, "score": verdict.score, "reason": verdict.reason});
            add("storedGraderResult", facts);
        }
        let ruling = match (chosen.ruling(), chosen.is_taken_back) {
            (None, true) => Some(Ruling::new(Verdict::Blocked, "the answer refuses")),
            (ruling, _) => ruling,
        };
        if let Some(ruling) = ruling {
            add(redteam::KEY, ruling.to_json());
        }
        Ok(ProviderResponse {
            output: Some(chosen.output.clone()),
            guardrails: chosen.response.guardrails.clone(),
            metadata: Some(metadata),
            ..ProviderResponse::default()
        })
    }

    fn history(&self, at: usize, each: &Try) -> Value {
        let mut facts = json!({
            "prompt": each.message, "output": each.output, "score": each.rating,
            "graderPassed": each.verdict.as_ref().map(|verdict| verdict.pass),
        });
        if self.by.branches > 1 {
            facts["id"] = json!(at);
            facts["parentId"] = json!(each.parent);
            facts["wasSelected"] = json!(each.is_kept);
        }
        if each.is_taken_back {
            facts["wasTakenBack"] = json!(true);
        }
        facts
    }
}
