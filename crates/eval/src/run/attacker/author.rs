//! The model that writes the messages of an attack.

use std::sync::PoisonError;

use sandcove_redteam::attacker::{Brief, Exchange, HIDES, KEY, MAX_SHOWN, spelling};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Attack, MAX_SILENT, Try};
use crate::assertion::attack;
use crate::calling::spec::{ProviderSpec, Turns};
use crate::calling::{Call, Role, transport};
use crate::model::Object;
use crate::run::error::RowError;
use crate::run::turns::Talk;
use crate::template::value::to_text;

/// Characters of an answer in an error.
const MAX_SAID: usize = 300;

impl Attack<'_, '_> {
    /// The next messages, at most as many as are wanted; none if the attacker writes none.
    ///
    /// # Errors
    /// The attacker's error, if it has written nothing before.
    pub(super) async fn next(&mut self, number: usize, path: &[usize]) -> Result<Vec<String>, RowError> {
        let Some(model) = self.model.clone() else {
            let seed = Sha256::digest(format!("{}/{}", self.first, self.tries.len()));
            let seed = seed.iter().take(8).fold(0, |seed, byte| (seed << 8) | u64::from(*byte));
            return Ok(vec![spelling(&self.first, seed)]);
        };
        let prompt = self.brief(number, path);
        let vars = Object::new();
        let context = json!({"vars": {}, "prompt": {"raw": prompt, "label": KEY}});
        let call = Call { prompt: &prompt, vars: &vars, config: &model.config, context: &context };
        // An answer of the cache is not the answer to every question.
        let attempt = self.talk.plan.repeat * 1000 + self.asked;
        self.asked += 1;
        let asked = self.talk.run.models.ask(&model, Role::Text, &call, attempt);
        let response = transport::expecting_service(asked).await?;
        self.talk.spent.add(&response);
        let said = response.output.unwrap_or_default();
        let most = limit(self.talk).unwrap_or(usize::MAX);
        let mut messages = attack::written(&said);
        messages.retain(|message| message.chars().count() <= most);
        messages.truncate(number);
        self.silent = if messages.is_empty() { self.silent + 1 } else { 0 };
        match (response.error, self.tries.is_empty() && self.silent > MAX_SILENT) {
            (Some(error), _) if self.tries.is_empty() => Err(RowError::Attacker { id: model.id, error }),
            (_, true) => {
                let said: String = to_text(&said).chars().take(MAX_SAID).collect();
                Err(RowError::SilentAttacker { id: model.id, said })
            }
            _ => Ok(messages),
        }
    }

    fn brief(&self, number: usize, path: &[usize]) -> String {
        let hides = self.is_on(HIDES);
        // The rest would be copied and not shown.
        let path = &path[path.len().saturating_sub(MAX_SHOWN)..];
        let tries: Vec<&Try> = path.iter().map(|at| &self.tries[*at]).collect();
        let outputs: Vec<String> = tries.iter().map(|each| to_text(&each.output)).collect();
        let verdicts: Vec<String> = tries.iter().map(|each| each.said()).collect();
        let exchanges = tries.iter().zip(&outputs).zip(&verdicts);
        let exchanges = exchanges.map(|((each, answer), verdict)| Exchange {
            message: &each.message,
            answer: (!hides).then_some(answer),
            verdict,
        });
        let successes = match self.by.learns {
            true => self.talk.run.successes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            false => Vec::new(),
        };
        let brief = Brief {
            purpose: &self.purpose,
            goal: &self.goal,
            first: &self.first,
            way: &self.way,
            wishes: self.wishes.clone(),
            successes,
            exchanges: exchanges.collect(),
            number,
        };
        brief.prompt()
    }
}

/// The most characters of a message.
pub(super) fn limit(talk: &Talk<'_>) -> Option<usize> {
    talk.config.get("maxCharsPerMessage").and_then(Value::as_u64).map(|most| most as usize)
}

/// The model that writes the messages: that of the strategy, else the one of the red team.
pub(super) fn model(talk: &Talk<'_>) -> Result<ProviderSpec, RowError> {
    let named = talk.config.get("redteamProvider").or(talk.run.attacker.as_ref());
    let spec = named.and_then(|named| ProviderSpec::from_value(named, talk.run.workers.base()));
    spec.filter(|spec| Turns::of(&spec.id).is_none()).ok_or(RowError::NoAttacker)
}
