//! A run: rows, side by side, and what they add up to.

mod attacker;
mod code_totals;
mod compare;
mod error;
mod expand;
pub mod filter;
mod grade;
mod hooks;
mod memory;
mod observe;
mod prompt;
mod row;
mod totals;
mod turns;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::assertion::attack;
use crate::calling::answers::Answers;
use crate::calling::spec::{ProviderSpec, Turns};
use crate::calling::{Models, Provider};
use crate::config::{Prompt, Suite, test_cases};
use crate::model::{Assertion, Column, Evaluation, Object, ProviderResponse, TestCase};
use crate::provider::Factory;
use crate::reading::env::is_off;
use crate::sandboxes::Sandboxes;
use crate::script::{Workers, transform};
use crate::store;
use crate::store::recording::{Recorded, Recording, StoredRow, Which};
use crate::template::Templates;
use crate::template::prompt::Switches;
use crate::traces::{self, Collector, Receiver};
pub use error::RunError;
use expand::{ColumnPlan, Plan};
use hooks::Hooks;
use memory::Memory;
pub use observe::{Control, End, Observer, Outcome, Start};
use totals::{Tallies, Tally};

/// The options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Maximum number of concurrent rows.
    pub concurrency: usize,
    /// How often each test is run.
    pub repeat: usize,
    /// Milliseconds to wait after every call.
    pub delay: Option<f64>,
    /// Whether answers are taken from and put into the cache.
    pub cache: bool,
    /// The time limit of a row.
    pub row_limit: Option<Duration>,
    /// The time limit of the run.
    pub run_limit: Option<Duration>,
    /// The options of the command line that result files show.
    pub shown: Value,
}

impl Default for RunOptions {
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

impl RunOptions {
    /// The options that a configuration sets, and the environment where it does not.
    pub fn from_config(config: &Object) -> Self {
        let number = |key: &str| config.get(key).and_then(Value::as_f64);
        let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
        let limit = |key: &str, name: &str| {
            let ms = number(key).or_else(|| env(name)).filter(|ms| *ms > 0.0);
            ms.map(|ms| Duration::from_secs_f64(ms / 1000.0))
        };
        let default = Self::default();
        Self {
            concurrency: number("maxConcurrency").map_or(default.concurrency, |n| n as usize),
            repeat: number("repeat").map_or(default.repeat, |n| n as usize),
            delay: number("delay").or_else(|| env("PROMPTFOO_DELAY_MS")),
            cache: config.get("cache") != Some(&json!(false)) && !is_off("PROMPTFOO_CACHE_ENABLED"),
            row_limit: limit("timeoutMs", "PROMPTFOO_EVAL_TIMEOUT_MS"),
            run_limit: limit("maxEvalTimeMs", "PROMPTFOO_MAX_EVAL_TIME_MS"),
            ..default
        }
    }
}

/// Everything rows share.
pub struct Run {
    id: String,
    columns: Vec<ColumnPlan>,
    prompts: Vec<Prompt>,
    providers: Vec<(ProviderSpec, Box<dyn Provider>)>,
    workers: Arc<Workers>,
    sandboxes: Arc<Sandboxes>,
    models: Models,
    templates: Templates,
    options: RunOptions,
    memory: Memory,
    deadline: Option<Instant>,
    hooks: Hooks,
    /// The provider of the default test, which also grades.
    fallback: Option<Value>,
    /// The model that writes attacks of a red team, which also grades them.
    attacker: Option<Value>,
    /// Messages of attackers that have succeeded.
    successes: Mutex<Vec<String>>,
    /// How rows are traced.
    tracing: traces::TraceSettings,
    /// The spans of the rows in work.
    traces: Arc<Collector>,
}

impl Run {
    /// Whether the rows of a test are traced.
    fn is_traced(&self, test: &TestCase) -> bool {
        self.tracing.all
            || is_traced_by(&self.workers)
            || test.raw.get("metadata").is_some_and(asks_for_traces)
    }

    /// The provider that grades where neither the assertion nor the test names one.
    fn fallback(&self, assertion: &Assertion) -> Option<&Value> {
        let attacker = self.attacker.as_ref().filter(|_| assertion.kind.starts_with(attack::PREFIX));
        self.fallback.as_ref().or(attacker)
    }

    fn switches(&self, test: &TestCase) -> Switches {
        Switches {
            no_templates: self.workers.env().is_on("PROMPTFOO_DISABLE_TEMPLATING")
                || test.options.get("disableTemplating") == Some(&json!(true)),
            no_json_escape: self.workers.env().is_on("PROMPTFOO_DISABLE_JSON_AUTOESCAPE"),
        }
    }
}

/// Whether the environment asks for traces, where the suite does not.
fn is_traced_by(workers: &Workers) -> bool {
    workers.env().is_on("PROMPTFOO_TRACING_ENABLED")
}

/// Whether the metadata of a test asks for traces.
fn asks_for_traces(metadata: &Value) -> bool {
    metadata["tracingEnabled"] == true
}

/// Runs a suite.
///
/// # Errors
/// When the suite names something that does not exist, or results cannot be stored.
pub fn run(
    suite: Suite,
    options: RunOptions,
    control: Control,
) -> BoxFuture<'static, Result<Outcome, RunError>> {
    Box::pin(run_suite(suite, options, control))
}

async fn run_suite(mut suite: Suite, mut options: RunOptions, control: Control) -> Result<Outcome, RunError> {
    let started = Instant::now();
    let hooks = Hooks::new(&suite.extensions, &suite.workers, Arc::clone(&control.observer))?;
    hooks.before_all(&mut suite).await?;
    let remembered = hooks.remembered(&suite);
    let fallback = fallback(&suite);
    let Expansion { columns, plans, vars, conversations } = expand(&mut suite, &mut options).await?;
    let factory = Factory::new(Arc::clone(&suite.workers), Arc::clone(&suite.sandboxes));
    let models = Models::new(Box::new(factory), Answers::new(options.cache, suite.workers.env()));
    let mut providers = Vec::new();
    for mut spec in suite.providers {
        let made = models.make(&spec)?;
        made.check(&spec.config)?;
        // Tests named it by the id of the configuration, and were expanded.
        if (spec.raw.is_string() || made.names_itself())
            && let Some(name) = made.shown_as().await
        {
            spec.id = name;
        }
        providers.push((spec, made));
    }
    let created = jiff::Timestamp::now();
    let mut evaluation = Evaluation {
        id: Evaluation::id_at(created),
        created_at: created.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        description: suite.description,
        config: suite.raw,
        columns: columns.iter().map(|plan| column(plan, &suite.prompts, &providers)).collect(),
        vars,
        runtime_options: shown_options(&options),
        ..Evaluation::default()
    };
    let compared: BTreeSet<usize> =
        plans.iter().filter(|plan| plan.test.is_compared).map(|plan| plan.test_idx).collect();
    let memory = Memory::new(conversations);
    let Opened { recorded, mut plans, mut tallies } =
        open(&control.start, &mut evaluation, plans, &compared, &memory).await?;
    // As in promptfoo, which decides what the others find stored.
    plans.sort_by_key(|plan| !plan.test.is_serial);
    let traces = Collector::new(&suite.tracing);
    let is_one_traced = plans.iter().any(|plan| plan.test.is_traced);
    let _receiver = match suite.tracing.all || is_traced_by(&suite.workers) || is_one_traced {
        true => receive(&suite.tracing, &traces, &*control.observer).await?,
        false => None,
    };
    let attacker = evaluation.config.get("redteam").and_then(|section| section.get("provider"));
    let attacker = attacker.filter(|named| !named.is_null()).cloned();
    let deadline = options.run_limit.map(|limit| started + limit);
    let run = Arc::new(Run {
        id: evaluation.id.clone(),
        columns,
        prompts: suite.prompts,
        providers,
        workers: suite.workers,
        sandboxes: suite.sandboxes,
        models,
        templates: suite.templates,
        options,
        memory,
        deadline,
        hooks,
        fallback,
        attacker,
        successes: Mutex::default(),
        tracing: suite.tracing,
        traces,
    });
    let observer = Arc::clone(&control.observer);
    observer.begun(plans.len(), run.options.concurrency, &run.id);
    let recording = Recording::of(recorded);
    let end = work::work(&run, plans, &recording, &mut tallies, control).await;
    run.sandboxes.ended().await;
    let mut rows = recording.end().await.inspect_err(|_| observer.ended())?;
    let changed = match end {
        End::Finished => compare_rows(&run, compared, &mut rows, &mut tallies).await?,
        End::Paused(_) | End::GivenUp => Vec::new(),
    };
    for warning in totals::add_up(&mut evaluation, &tallies, &suite.derived_metrics) {
        observer.warned(&warning);
    }
    evaluation.stats.duration_ms = started.elapsed().as_millis() as u64;
    evaluation.stats.evaluation_duration_ms = evaluation.stats.duration_ms;
    store::strip_columns(&mut evaluation.columns);
    rows.finish(&evaluation, &changed).await?;
    let after = match end {
        End::Finished => run.hooks.after_all(&remembered, &evaluation, &mut rows).await,
        End::Paused(_) | End::GivenUp => Ok(()),
    };
    observer.ended();
    Ok(Outcome { evaluation, rows, end, after })
}

/// Starts the receiver of spans. A suite may say that its run goes on without one.
async fn receive(
    settings: &traces::TraceSettings,
    traces: &Arc<Collector>,
    observer: &dyn Observer,
) -> Result<Option<Receiver>, RunError> {
    match Receiver::start(settings, traces).await {
        Err(error) if settings.optional => {
            observer.warned(&error.to_string());
            Ok(None)
        }
        started => Ok(started?),
    }
}

/// The provider of the default test, unless it only asks others.
fn fallback(suite: &Suite) -> Option<Value> {
    let named = suite.default_test.get("provider")?;
    let spec = ProviderSpec::of_test(named, suite.workers.base());
    let asks_others = spec.is_some_and(|spec| Turns::of(&spec.id).is_some());
    (!asks_others && !named.is_null()).then(|| named.clone())
}

/// The options that result files show: those of the command line, and how many rows ran at a time.
fn shown_options(options: &RunOptions) -> Value {
    let mut shown = options.shown.as_object().cloned().unwrap_or_default();
    shown.entry("maxConcurrency").or_insert_with(|| json!(options.concurrency));
    shown.entry("repeat").or_insert_with(|| json!(options.repeat));
    Value::Object(shown)
}

/// Rows and columns of a suite before it is run.
struct Expansion {
    columns: Vec<ColumnPlan>,
    plans: Vec<Plan>,
    vars: Vec<String>,
    conversations: bool,
}

/// Merges the default test into all tests and expands them into rows. Rows that depend on each other run one at a time.
async fn expand(suite: &mut Suite, options: &mut RunOptions) -> Result<Expansion, RunError> {
    let default = std::mem::take(&mut suite.default_test);
    let tests = std::mem::take(&mut suite.tests).into_iter();
    let tests: Vec<Object> = tests.map(|test| test_cases::merge(&default, test)).collect();
    let columns = expand::columns(&suite.providers, &suite.prompts);
    let conversations = suite.prompts.iter().any(|prompt| prompt.raw.contains("_conversation"))
        && !suite.workers.env().is_on("PROMPTFOO_DISABLE_CONVERSATION_VAR");
    let stored = tests.iter().any(|test| {
        test_cases::option(test, "storeOutputAs").is_some()
            || test_cases::option(test, "runSerially") == Some(&json!(true))
    });
    let delayed = options.delay.is_some_and(|delay| delay > 0.0);
    if conversations || stored || delayed {
        options.concurrency = 1;
    }
    let workers = &suite.workers;
    let changed = changed_vars(&tests, workers).await;
    let mut vars = totals::variable_names(&tests);
    for name in changed.iter().flatten().flatten().flat_map(Object::keys) {
        if !vars.contains(name) {
            vars.push(name.clone());
        }
    }
    let (providers, all) = (&suite.providers, &suite.prompts);
    let plans = expand::rows(tests, changed, &columns, providers, all, options.repeat, workers)?;
    Ok(Expansion { columns, plans, vars, conversations })
}

/// Returns the variables of the tests that have a `transformVars`, as it leaves them: with lists that multiply the test, before it has rows.
async fn changed_vars(tests: &[Object], workers: &Workers) -> Vec<expand::ChangedVars> {
    let mut all = Vec::with_capacity(tests.len());
    for test in tests {
        let code = test_cases::option(test, "transformVars").filter(|code| !code.is_null());
        all.push(match code {
            Some(code) => Some(change_vars(code, test, workers).await),
            None => None,
        });
    }
    all
}

async fn change_vars(code: &Value, test: &Object, workers: &Workers) -> Result<Object, error::RowError> {
    let mut vars = test.get("vars").and_then(Value::as_object).cloned().unwrap_or_default();
    let context = json!({"prompt": {}, "uuid": uuid::Uuid::new_v4().to_string()});
    let given = Value::Object(vars.clone());
    match transform::apply(code, given, context, "vars", workers).await? {
        Value::Object(changed) => vars.extend(changed),
        _ => return Err(error::RowError::NoVariables),
    }
    Ok(vars)
}

/// A run in the database, the rows that are left to do, and the sums of those that are done.
struct Opened {
    recorded: Recorded,
    plans: Vec<Plan>,
    tallies: Tallies,
}

/// Stores a new run, or opens the one that is resumed.
async fn open(
    start: &Start,
    evaluation: &mut Evaluation,
    plans: Vec<Plan>,
    compared: &BTreeSet<usize>,
    memory: &Memory,
) -> Result<Opened, RunError> {
    let plan = expand::fingerprint(&evaluation.columns, &plans);
    let mut tallies = Tallies::new();
    let (id, errors) = match start {
        Start::New { storage, invocation } => {
            let recorded = Recorded::begin(*storage, evaluation, invocation, &plan).await?;
            return Ok(Opened { recorded, plans, tallies });
        }
        Start::Again { id, errors } => (id, *errors),
    };
    let mut recorded = Recorded::reopen(id, &plan).await?;
    evaluation.id.clone_from(id);
    evaluation.created_at = recorded.created_at().await?;
    if errors {
        recorded.forget_errors(|test| compared.contains(&test)).await?;
    }
    let left = plans.into_iter().map(|plan| ((plan.test_idx, plan.prompt_idx), plan));
    let mut left: BTreeMap<_, _> = left.collect();
    recorded
        .each(Which::All, |row| {
            let done = left.remove(&(row.test_idx, row.prompt_idx));
            if let (Some(plan), Some(response)) = (done, &row.response) {
                let own = row.metadata.get(memory::OWN_OUTPUT).cloned();
                let answered =
                    ProviderResponse { output: own.or_else(|| response.output.clone()), ..response.clone() };
                memory.keep_turn(&plan, row.provider.name(), &row.prompt_id, &row.prompt.raw, &answered);
                memory.keep_output(&plan, response);
            }
            tallies.insert((row.test_idx, row.prompt_idx), Tally::from(&row));
            Ok::<_, RunError>(())
        })
        .await?;
    Ok(Opened { recorded, plans: left.into_values().collect(), tallies })
}

/// Compares the rows of the tests that ask for it, and returns those that changed.
async fn compare_rows(
    run: &Run,
    compared: BTreeSet<usize>,
    rows: &mut Recorded,
    tallies: &mut Tallies,
) -> Result<Vec<StoredRow>, RunError> {
    let mut changed = Vec::new();
    for test in compared {
        let mut group = rows.rows(Which::Test(test)).await?;
        // The rows of a resumed run may have been compared before.
        if !compare::is_done(&group) {
            compare::compare(run, &mut group).await;
        }
        for row in &group {
            tallies.insert((row.test_idx, row.prompt_idx), Tally::from(row));
            changed.push(StoredRow::stripped(row));
        }
    }
    Ok(changed)
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
