//! A run: rows, side by side, and what they add up to.

mod caller;
mod compare;
pub mod expand;
pub mod filter;
mod grade;
mod memory;
mod row;
mod totals;
mod transform;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::config::{Prompt, Suite};
use crate::model::{Column, Evaluation, Object, Row, TestCase};
use crate::provider::spec::ProviderSpec;
use crate::provider::{self, Provider};
use crate::services::Services;
use crate::template::Templates;
use crate::template::prompt::Switches;
use caller::Caller;
use expand::ColumnPlan;
use memory::Memory;

/// How a run goes about it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rows at a time.
    pub concurrency: usize,
    /// How often each test is run.
    pub repeat: usize,
    /// Milliseconds to wait after every call.
    pub delay: Option<f64>,
    /// Whether answers are taken from and put into the cache.
    pub cache: bool,
    /// How long one row may take.
    pub row_limit: Option<Duration>,
    /// How long the run may take.
    pub run_limit: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { concurrency: 4, repeat: 1, delay: None, cache: true, row_limit: None, run_limit: None }
    }
}

/// Everything rows share.
pub struct Run {
    id: String,
    columns: Vec<ColumnPlan>,
    prompts: Vec<Prompt>,
    providers: Vec<(ProviderSpec, Box<dyn Provider>)>,
    services: Services,
    templates: Templates,
    settings: Settings,
    memory: Memory,
    caller: Caller,
}

impl Run {
    fn switches(&self, test: &TestCase) -> Switches {
        use crate::config::env::is_on;
        Switches {
            no_templates: is_on("PROMPTFOO_DISABLE_TEMPLATING")
                || test.options.get("disableTemplating") == Some(&json!(true)),
            no_json_escape: is_on("PROMPTFOO_DISABLE_JSON_AUTOESCAPE"),
        }
    }
}

/// Runs a suite. `each` is told about every finished row, in the order they finish.
///
/// # Errors
/// When the suite names something that does not exist.
pub async fn run(
    suite: Suite,
    settings: Settings,
    mut begin: impl FnMut(usize, &str),
    mut each: impl FnMut(&Row),
) -> Result<Evaluation, String> {
    let started = Instant::now();
    let created = jiff::Timestamp::now();
    let id = evaluation_id(created);
    let mut settings = settings;
    let columns = expand::columns(&suite.providers, &suite.prompts);
    let conversations = suite.prompts.iter().any(|prompt| prompt.raw.contains("_conversation"));
    let stored = suite.tests.iter().any(|test| {
        test.options.contains_key("storeOutputAs") || test.options.get("runSerially") == Some(&json!(true))
    });
    let delayed = settings.delay.is_some_and(|delay| delay > 0.0);
    if conversations || stored || delayed {
        settings.concurrency = 1;
    }
    let vars = totals::variable_names(&suite.tests);
    let plans = expand::rows(
        suite.tests,
        &columns,
        &suite.providers,
        &suite.prompts,
        settings.repeat,
        &suite.services.base,
    )?;
    let mut providers = Vec::new();
    for spec in suite.providers {
        let made = provider::make(&spec)?;
        providers.push((spec, made));
    }
    begin(plans.len(), &id);
    let empty = columns.iter().map(|plan| column(plan, &suite.prompts, &providers)).collect();
    let caller = Caller::new(settings.cache, &suite.services);
    let concurrency = settings.concurrency.max(1);
    let deadline = settings.run_limit.map(|limit| started + limit);
    let run = Arc::new(Run {
        id: id.clone(),
        columns,
        prompts: suite.prompts,
        providers,
        services: suite.services,
        templates: suite.templates,
        settings,
        memory: Memory::new(conversations),
        caller,
    });
    let mut rows = Vec::with_capacity(plans.len());
    let mut running = futures_util::stream::iter(plans)
        .map(|plan| {
            let run = Arc::clone(&run);
            async move {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return late(&run, &plan);
                }
                let lost = (Arc::clone(&run), plan.clone());
                match tokio::spawn(row::run(run, plan)).await {
                    Ok(row) => row,
                    Err(error) => Row {
                        error: Some(format!("the row could not be run: {error}")),
                        ..late(&lost.0, &lost.1)
                    },
                }
            }
        })
        .buffer_unordered(concurrency);
    while let Some(row) = running.next().await {
        each(&row);
        rows.push(row);
    }
    drop(running);
    rows.sort_by_key(|row| (row.test_idx, row.prompt_idx));
    compare::compare(&run, &mut rows).await;
    let (columns, mut stats) = totals::add_up(empty, &rows, &suite.derived_metrics);
    stats.duration_ms = started.elapsed().as_millis() as u64;
    stats.evaluation_duration_ms = stats.duration_ms;
    Ok(Evaluation {
        id,
        created_at: created.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        description: suite.description,
        config: suite.raw,
        columns,
        rows,
        stats,
        vars,
        runtime_options: Value::Object(Object::new()),
    })
}

fn late(run: &Run, plan: &expand::RowPlan) -> Row {
    let column = run.columns[plan.prompt_idx];
    let spec = &run.providers[column.provider].0;
    Row {
        id: uuid::Uuid::new_v4().to_string(),
        test_idx: plan.test_idx,
        prompt_idx: plan.prompt_idx,
        vars: (*plan.vars).clone(),
        test_case: plan.test.raw.clone(),
        provider: crate::model::ProviderName {
            id: spec.id.clone(),
            label: spec.label.clone().unwrap_or_default(),
        },
        error: Some("the run took longer than its limit".to_owned()),
        failure_reason: crate::model::Failure::Error,
        ..Row::default()
    }
}

fn column(plan: &ColumnPlan, prompts: &[Prompt], providers: &[(ProviderSpec, Box<dyn Provider>)]) -> Column {
    let prompt = &prompts[plan.prompt];
    Column {
        raw: prompt.raw.clone(),
        label: prompt.label.clone(),
        id: prompt.id(),
        config: prompt.config.clone(),
        provider: providers[plan.provider].0.name().to_owned(),
        ..Column::default()
    }
}

/// `eval-abc-2026-01-31T12:00:00`
fn evaluation_id(at: jiff::Timestamp) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let word: String = (0..3).map(|_| LETTERS[rand::random_range(0..LETTERS.len())] as char).collect();
    format!("eval-{word}-{}", at.strftime("%Y-%m-%dT%H:%M:%S"))
}
