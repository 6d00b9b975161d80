//! A run: rows, side by side, and what they add up to.

mod compare;
pub mod expand;
pub mod filter;
mod grade;
pub mod hooks;
mod memory;
mod row;
mod totals;
pub mod transform;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::{Prompt, Suite, tests};
use crate::model::{Column, Evaluation, Object, Row, TestCase};
use crate::provider::answers::Answers;
use crate::provider::spec::ProviderSpec;
use crate::provider::{self, Provider};
use crate::services::Services;
use crate::store::recording::{Keep, Recorded, Recording, StoredRow, Which};
use crate::template::Templates;
use crate::template::prompt::Switches;
use expand::{ColumnPlan, Plan};
use hooks::Hooks;
use memory::Memory;
use totals::{Tallies, Tally};

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
    /// What the command line changed, for result files.
    pub shown: Value,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 4,
            repeat: 1,
            delay: None,
            cache: true,
            row_limit: None,
            run_limit: None,
            shown: json!({}),
        }
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
    deadline: Option<Instant>,
    hooks: Hooks,
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

/// Where a run comes from.
#[derive(Debug, Clone)]
pub enum Start {
    /// It is new. `invocation` is kept with it, for [`Start::Again`].
    New {
        /// Whether it outlives the process.
        keep: Keep,
        /// How it was asked for.
        invocation: Value,
    },
    /// A stored run is gone on with.
    Again {
        /// Its id.
        id: String,
        /// Whether rows with errors are run again, beside those that are missing.
        errors: bool,
    },
}

/// How whoever started a run follows it and breaks in.
pub struct Control<'a> {
    /// Where it comes from.
    pub start: Start,
    /// At the first message no more rows are begun, at the second those under way are given up.
    pub interrupts: mpsc::Receiver<()>,
    /// Is told how many rows there are to do, how many at a time, and the run's id.
    pub begin: &'a mut dyn FnMut(usize, usize, &str),
    /// Is told of every finished row whether it passed, in the order they finish.
    pub each: &'a mut dyn FnMut(bool),
    /// Is told that the run pauses, and how many rows are still under way.
    pub pausing: &'a mut dyn FnMut(usize),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All rows are done.
    Finished,
    /// So many rows are missing.
    Paused(usize),
    /// It was given up in the middle of rows.
    GivenUp,
}

/// A run that ended.
#[derive(Debug)]
pub struct Outcome {
    /// What it adds up to.
    pub evaluation: Evaluation,
    /// Its rows.
    pub rows: Recorded,
    /// How it ended.
    pub end: End,
    /// Whether the hooks after it did what they should.
    pub after: Result<(), String>,
}

/// Runs a suite.
///
/// # Errors
/// When the suite names something that does not exist, or results cannot be kept.
pub async fn run(suite: Suite, settings: Settings, control: Control<'_>) -> Result<Outcome, String> {
    let started = Instant::now();
    let mut settings = settings;
    let mut suite = suite;
    let hooks = Hooks::new(&suite.extensions, &suite.services)?;
    hooks.before_all(&mut suite).await?;
    let remembered = hooks.remembered(&suite);
    let default = std::mem::take(&mut suite.default_test);
    let tests: Vec<Object> = suite.tests.into_iter().map(|test| tests::merge(&default, test)).collect();
    let columns = expand::columns(&suite.providers, &suite.prompts);
    let conversations = suite.prompts.iter().any(|prompt| prompt.raw.contains("_conversation"))
        && !crate::config::env::is_on("PROMPTFOO_DISABLE_CONVERSATION_VAR");
    let stored = tests.iter().any(|test| {
        tests::option(test, "storeOutputAs").is_some()
            || tests::option(test, "runSerially") == Some(&json!(true))
    });
    let delayed = settings.delay.is_some_and(|delay| delay > 0.0);
    if conversations || stored || delayed {
        settings.concurrency = 1;
    }
    let vars = totals::variable_names(&tests);
    let mut plans = expand::rows(
        tests,
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
    let created = jiff::Timestamp::now();
    let mut evaluation = Evaluation {
        id: evaluation_id(created),
        created_at: created.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        description: suite.description,
        config: suite.raw,
        columns: columns.iter().map(|plan| column(plan, &suite.prompts, &providers)).collect(),
        vars,
        runtime_options: settings.shown.clone(),
        ..Evaluation::default()
    };
    let compared: BTreeSet<usize> =
        plans.iter().filter(|plan| compare::is_asked(&plan.test)).map(|plan| plan.test_idx).collect();
    let memory = Memory::new(conversations);
    let plan = fingerprint(&evaluation.columns, &plans);
    let mut tallies = Tallies::new();
    let recorded = match &control.start {
        Start::New { keep, invocation } => Recorded::begin(*keep, &evaluation, invocation, &plan).await?,
        Start::Again { id, errors } => {
            let mut recorded = Recorded::reopen(id, &plan).await?;
            evaluation.id.clone_from(id);
            evaluation.created_at = recorded.created_at().await?;
            if *errors {
                recorded.forget_errors(|test| compared.contains(&test)).await?;
            }
            let mut left = plans
                .into_iter()
                .map(|plan| ((plan.test_idx, plan.prompt_idx), plan))
                .collect::<BTreeMap<_, _>>();
            recorded
                .each(Which::All, |row| {
                    let done = left.remove(&(row.test_idx, row.prompt_idx));
                    if let (Some(plan), Some(response)) = (done, &row.response) {
                        memory.keep(
                            &plan.read(),
                            &row.provider.id,
                            &row.prompt_id,
                            &row.prompt.raw,
                            response,
                        );
                    }
                    tallies.insert((row.test_idx, row.prompt_idx), Tally::from(&row));
                    Ok(())
                })
                .await?;
            plans = left.into_values().collect();
            recorded
        }
    };
    suite.services.answers = Answers::new(settings.cache, &suite.services);
    let deadline = settings.run_limit.map(|limit| started + limit);
    let run = Arc::new(Run {
        id: evaluation.id.clone(),
        columns,
        prompts: suite.prompts,
        providers,
        services: suite.services,
        templates: suite.templates,
        settings,
        memory,
        deadline,
        hooks,
    });
    (control.begin)(plans.len(), run.settings.concurrency, &run.id);
    let recording = Recording::of(recorded);
    let end = work(&run, plans, &recording, &mut tallies, control).await;
    let mut rows = recording.end().await?;
    let mut changed = Vec::new();
    if end == End::Finished {
        for test in compared {
            let mut group = rows.rows(Which::Test(test)).await?;
            // What was gone on with may have compared it before.
            if !compare::is_done(&group) {
                compare::compare(&run, &mut group).await;
            }
            for row in &group {
                tallies.insert((row.test_idx, row.prompt_idx), Tally::from(row));
                changed.push(StoredRow::stripped(row));
            }
        }
    }
    totals::add_up(&mut evaluation, &tallies, &suite.derived_metrics);
    evaluation.stats.duration_ms = started.elapsed().as_millis() as u64;
    evaluation.stats.evaluation_duration_ms = evaluation.stats.duration_ms;
    crate::store::strip_columns(&mut evaluation.columns);
    rows.finish(&evaluation, &changed).await?;
    let after = match end {
        End::Finished => run.hooks.after_all(&remembered, &evaluation, &mut rows).await,
        End::Paused(_) | End::GivenUp => Ok(()),
    };
    Ok(Outcome { evaluation, rows, end, after })
}

/// What a row leaves when it is done.
type Done = (StoredRow, Tally, (usize, usize));

/// Runs rows side by side until all are done or somebody breaks in.
async fn work(
    run: &Arc<Run>,
    plans: Vec<Plan>,
    recording: &Recording,
    tallies: &mut Tallies,
    mut control: Control<'_>,
) -> End {
    let mut plans = plans.into_iter();
    let mut running: JoinSet<Done> = JoinSet::new();
    // For rows whose code panics.
    let mut under_way: HashMap<tokio::task::Id, Plan> = HashMap::new();
    let mut paused = false;
    loop {
        while !paused && running.len() < run.settings.concurrency.max(1) {
            let Some(plan) = plans.next() else { break };
            let run = Arc::clone(run);
            let own = plan.clone();
            let task = running.spawn(async move {
                let whole = compare::is_asked(&own.test);
                done(&row::run(run, own).await, whole)
            });
            under_way.insert(task.id(), plan);
        }
        let finished = tokio::select! {
            finished = running.join_next_with_id() => finished,
            Some(()) = control.interrupts.recv() => {
                if paused {
                    running.shutdown().await;
                    return End::GivenUp;
                }
                paused = true;
                (control.pausing)(running.len());
                continue;
            }
        };
        let (stored, tally, place) = match finished {
            None if plans.len() == 0 => return End::Finished,
            None => return End::Paused(plans.len()),
            Some(Ok((id, done))) => {
                under_way.remove(&id);
                done
            }
            Some(Err(error)) => {
                let Some(plan) = under_way.remove(&error.id()) else { continue };
                done(&row::lost(run, &plan.read(), format!("the row could not be run: {error}")), false)
            }
        };
        (control.each)(tally.passed());
        tallies.insert(place, tally);
        if !recording.add(stored).await {
            return End::GivenUp;
        }
    }
}

fn done(row: &Row, whole: bool) -> Done {
    let stored = if whole { StoredRow::whole(row) } else { StoredRow::stripped(row) };
    (stored, Tally::from(row), (row.test_idx, row.prompt_idx))
}

/// Says whether two runs have the same rows to do.
fn fingerprint(columns: &[Column], plans: &[Plan]) -> String {
    let mut digest = Sha256::new();
    for column in columns {
        digest.update(json!([column.id, column.provider]).to_string());
    }
    for plan in plans {
        digest.update(json!([plan.test_idx, plan.prompt_idx, plan.repeat, *plan.vars]).to_string());
        // The text of a test is the same for all its rows; it is told by its place.
        if plan.prompt_idx == 0 {
            digest.update(serde_json::to_vec(&*plan.test).unwrap_or_default());
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
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

/// The id of a run that begins now.
pub fn new_id() -> String {
    evaluation_id(jiff::Timestamp::now())
}

/// `eval-abc-2026-01-31T12:00:00`
pub(crate) fn evaluation_id(at: jiff::Timestamp) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let word: String = (0..3).map(|_| LETTERS[rand::random_range(0..LETTERS.len())] as char).collect();
    format!("eval-{word}-{}", at.strftime("%Y-%m-%dT%H:%M:%S"))
}
