//! Attacks of a red team that a model writes: those of plugins whose attacks are not data, and other attacks in another form.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sandcove_redteam::attack::literal;
use sandcove_redteam::attacker::{KEY, SHAPE};
use sandcove_redteam::generate::Skipped;
use sandcove_redteam::section::Section;
use sandcove_redteam::wish::{self, Rewrite, Wish};
use serde_json::{Value, json};

use super::{GenerateError, Model, Progress, programs, shortened};
use crate::assertion::attack;
use crate::calling::spec::ProviderSpec;
use crate::config::attacks::{AttackError, AttackPlan, Attacks};
use crate::reading::env::{self, Env};
use crate::sandboxes::Sandboxes;
use crate::script::Workers;
use crate::template::Templates;
use crate::template::value::to_text;

/// Options of attacks that a model writes.
#[derive(Debug, Clone)]
pub struct AuthorOptions {
    /// Whether answers are cached.
    pub cache: bool,
    /// The number of questions that wait for their answers at a time.
    pub concurrency: usize,
}

/// Rounds in which nothing new came, after which no more is asked for.
const MAX_IDLE: usize = 2;

/// Makes the suite of a red team, with what programs of the user's make of its attacks. Where the section names a model, it writes the attacks that
/// are not data; what it does not write is skipped.
///
/// # Errors
/// An error if there is nothing to attack, or the model cannot be created.
pub async fn red_team(
    plan: &AttackPlan,
    options: &AuthorOptions,
    progress: Progress<'_>,
) -> Result<Attacks, GenerateError> {
    // Scripts run in it, where a relative path of theirs would be another one.
    let base = std::path::absolute(&plan.base).unwrap_or_else(|_| plan.base.clone());
    let workers = Arc::new(Workers::new(base, Env::new(plan.variables.clone()), options.concurrency));
    let mut attacks = match plan.section.contexts.split_first() {
        None => in_context(plan, &workers, options, progress).await?,
        Some((first, others)) => {
            let mut attacks = in_context(&plan.within(first), &workers, options, progress).await?;
            attacks.set_within(first);
            for context in others {
                progress(format!("context {}", context.id));
                let mut more = in_context(&plan.within(context), &workers, options, progress).await?;
                more.set_within(context);
                attacks.add_those_on_models(more);
            }
            attacks
        }
    };
    programs::call(&mut attacks, plan.inject_var(), &workers, progress).await;
    Ok(attacks)
}

/// The suite for one role or state of the target.
async fn in_context(
    plan: &AttackPlan,
    workers: &Arc<Workers>,
    options: &AuthorOptions,
    progress: Progress<'_>,
) -> Result<Attacks, GenerateError> {
    match &plan.section.provider {
        Some(provider) => written(provider, plan, workers, options, progress).await,
        None => Ok(plan.suite(None)?),
    }
}

/// The suite with the attacks that a model writes.
async fn written(
    provider: &Value,
    plan: &AttackPlan,
    workers: &Arc<Workers>,
    options: &AuthorOptions,
    progress: Progress<'_>,
) -> Result<Attacks, GenerateError> {
    let author = Author::new(provider, plan, workers, options)?;
    let wishes = if plan.attacks_models() { wish::wishes(&plan.section) } else { Vec::new() };
    let written = stream::iter(&wishes).map(|wish| async {
        let written = author.write(wish).await;
        let outcome = written
            .as_ref()
            .map_or_else(ToString::to_string, |texts| format!("{} of {} attacks", texts.len(), wish.number));
        progress(format!("{}: {outcome}", wish.plugin.id));
        written
    });
    let written: Vec<_> = written.buffered(options.concurrency.max(1)).collect().await;
    let (mut texts, mut reasons) = (Vec::new(), Vec::new());
    for (wish, written) in wishes.iter().zip(written) {
        match written {
            Ok(written) => texts.push(written),
            Err(error) => {
                texts.push(Vec::new());
                reasons.push((format!("plugin {}", wish.plugin.id), error));
            }
        }
    }
    let mut attacks = match plan.suite(Some(&texts)) {
        // The reason why there is nothing.
        Err(AttackError::Nothing) if !reasons.is_empty() => return Err(reasons.swap_remove(0).1),
        suite => suite?,
    };
    for (what, error) in reasons {
        if let Some(skip) = attacks.skipped.iter_mut().find(|skip| skip.what == what) {
            skip.why = error.to_string();
        }
    }
    let rewrites = std::mem::take(&mut attacks.rewrites);
    let (tests, skipped) = author.rewrite_all(&rewrites, plan.inject_var(), options, progress).await;
    attacks.add(tests, skipped);
    match attacks.document["tests"].as_array().is_none_or(Vec::is_empty) {
        true => Err(AttackError::Nothing.into()),
        false => Ok(attacks),
    }
}

/// The model that writes attacks.
struct Author<'a> {
    model: Model,
    section: &'a Section,
    templates: Templates,
}

impl<'a> Author<'a> {
    fn new(
        provider: &Value,
        plan: &'a AttackPlan,
        workers: &Arc<Workers>,
        options: &AuthorOptions,
    ) -> Result<Self, GenerateError> {
        let base = workers.base();
        let spec = ProviderSpec::from_value(provider, base).ok_or(GenerateError::NoModel)?;
        let sandboxes = Sandboxes::new(workers.env().clone(), options.concurrency);
        let model = Model::of(spec, workers, &Arc::new(sandboxes), options.cache)?;
        let templates = Templates::new(env::for_templates(&plan.variables)).with_base(base);
        Ok(Self { model, section: &plan.section, templates })
    }

    /// The attacks of a plugin, at most as many as are wanted, and at least one.
    async fn write(&self, wish: &Wish) -> Result<Vec<String>, GenerateError> {
        let mut known: Vec<String> = Vec::new();
        let (mut round, mut idle, mut last) = (0, 0, String::new());
        while known.len() < wish.number && idle <= MAX_IDLE {
            let prompt = self.prompt(wish, wish.number - known.len(), &known)?;
            let said = match self.model.ask(&prompt, KEY, round).await {
                // Some are better than none.
                Err(_) if !known.is_empty() => break,
                said => said?,
            };
            let before = known.len();
            for text in attack::written(&said) {
                let fits = self.section.max_characters.is_none_or(|most| text.chars().count() <= most);
                if fits && known.len() < wish.number && !known.contains(&text) {
                    known.push(text);
                }
            }
            idle = if known.len() == before { idle + 1 } else { 0 };
            round += 1;
            last = to_text(&said);
        }
        match known.is_empty() && wish.number > 0 {
            true => Err(self.unwritten(&last)),
            false => Ok(known),
        }
    }

    /// The prompt of a plugin: that of its file, or ours.
    fn prompt(&self, wish: &Wish, number: usize, known: &[String]) -> Result<String, GenerateError> {
        let config = &wish.plugin.config;
        let Some(own) = config.get("generator").and_then(Value::as_str) else {
            return Ok(wish.prompt(self.section, number, known));
        };
        let vars = json!({
            "n": number, "purpose": self.section.purpose, "entities": self.section.entities,
            "examples": config.get("examples").cloned().unwrap_or_else(|| json!([])),
        });
        let vars = vars.as_object().cloned().unwrap_or_default();
        let own = self.templates.render(own, &vars).map_err(|error| AttackError::Plugin {
            id: wish.plugin.id.clone(),
            reason: format!("its `generator`: {error}"),
        })?;
        let known = match known {
            [] => String::new(),
            known => format!("These exist already; write others:\n{}\n\n", known.join("\n")),
        };
        Ok(format!("{own}\n\n{known}{SHAPE}"))
    }

    /// Writes attacks in other forms: the tests, and what was not written.
    async fn rewrite_all(
        &self,
        rewrites: &[Rewrite],
        inject_var: &str,
        options: &AuthorOptions,
        progress: Progress<'_>,
    ) -> (Vec<Value>, Vec<Skipped>) {
        let written = stream::iter(rewrites).map(|rewrite| self.rewrite(rewrite));
        let mut written = written.buffered(options.concurrency.max(1)).enumerate();
        let (mut tests, mut skipped) = (Vec::new(), Vec::new());
        while let Some((at, written)) = written.next().await {
            let mut test = rewrites[at].test.clone();
            match written {
                Ok(text) => {
                    test["vars"][inject_var] = json!(literal(&text));
                    tests.push(test);
                }
                Err(error) => {
                    let what =
                        format!("strategy {} of {}", text_of(&test, "strategyId"), text_of(&test, "probe"));
                    skipped.push(Skipped { what, why: error.to_string() });
                }
            }
            progress(format!("{} of {} attacks in other forms", at + 1, rewrites.len()));
        }
        (tests, skipped)
    }

    async fn rewrite(&self, rewrite: &Rewrite) -> Result<String, GenerateError> {
        let original = text_of(&rewrite.test, "originalText");
        let said = self.model.ask(&rewrite.prompt(original), KEY, 0).await?;
        attack::written(&said).into_iter().next().ok_or_else(|| self.unwritten(&to_text(&said)))
    }

    fn unwritten(&self, answer: &str) -> GenerateError {
        GenerateError::Answer { id: self.model.spec.id.clone(), wanted: KEY, answer: shortened(answer) }
    }
}

fn text_of<'a>(test: &'a Value, key: &str) -> &'a str {
    test["metadata"][key].as_str().unwrap_or_default()
}
