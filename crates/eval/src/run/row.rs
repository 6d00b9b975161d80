//! One row: render, call, transform, grade.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::error::RowError;
use super::expand::Plan;
use super::grade::Answered;
use super::{Run, grade, memory, prompt as prompts, turns};
use crate::calling::spec::ProviderSpec;
use crate::calling::{Call, FILTERS, ORIGINAL, Provider, Role};
use crate::config::prompts::Prompt;
use crate::grading::aggregate::{add_tokens, counted_usage, zero_usage};
use crate::model::{
    Assertion, Failure, GradingResult, Object, PromptText, ProviderName, ProviderResponse, Row, TokenUsage,
    about,
};
use crate::script::transform;
use crate::template::prompt;
use crate::template::value::to_text;
use crate::traces::{Trace, Traced};

const LATE: &str = "the run took longer than its limit";

/// Runs a row, and the hooks around it. Whatever goes wrong becomes part of it.
pub async fn run(run: Arc<Run>, plan: Plan) -> Row {
    if run.hooks.are_none() {
        return between_hooks(&run, &plan).await;
    }
    let mut test = plan.test.raw().clone();
    test.insert("vars".to_owned(), Value::Object(plan.vars().clone()));
    if let Err(error) = run.hooks.before_each(&mut test).await {
        return lost(&run, &plan, error.to_string());
    }
    let own = plan.of(&test);
    let mut row = between_hooks(&run, &own).await;
    // A hook that fails costs only what it would have added.
    if let Err(error) = run.hooks.after_each(own.test.raw(), &mut row).await {
        tracing::warn!(test = row.test_idx, "{error}");
    }
    row
}

async fn between_hooks(run: &Run, plan: &Plan) -> Row {
    let mut row = begin(run, plan);
    let left = run.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        fail(&mut row, LATE.to_owned());
        return row;
    }
    let own = run.options.row_limit;
    let limit = own.into_iter().chain(left).min().unwrap_or(Duration::from_secs(365 * 86_400));
    match tokio::time::timeout(limit, fill(run, plan, &mut row)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let nothing = matches!(error, RowError::NoOutput);
            if !matches!(error, RowError::Answer(_) | RowError::NoOutput | RowError::Verdict(_)) {
                // What breaks before there is a verdict leaves nothing of the answer.
                let id = json!({"providerId": row.provider.id, "providerLabel": row.provider.label});
                row.metadata.clone_from(&plan.case().metadata);
                row.metadata.insert("errorContext".to_owned(), id);
                row.token_usage = Some(counted_usage());
            }
            fail(&mut row, error.to_string());
            // Promptfoo counts an answer of nothing as a failure, and no error.
            if nothing {
                row.failure_reason = Failure::None;
            }
        }
        Err(_) if left == Some(limit) => fail(&mut row, LATE.to_owned()),
        Err(_) => fail(&mut row, format!("the row took longer than {} ms", limit.as_millis())),
    }
    row
}

/// Returns the names of a row's column and test.
pub fn name(run: &Run, plan: &Plan) -> String {
    let spec = &run.providers[run.columns[plan.prompt_idx].provider].0;
    let description = plan.test.raw().get("description").and_then(Value::as_str);
    format!("[{}] {}", spec.name(), about(description, plan.vars(), plan.test_idx))
}

/// A row that could not be run.
pub fn lost(run: &Run, plan: &Plan, error: String) -> Row {
    let mut row = begin(run, plan);
    fail(&mut row, error);
    row
}

fn begin(run: &Run, plan: &Plan) -> Row {
    let column = run.columns[plan.prompt_idx];
    let text = &run.prompts[column.prompt];
    let spec = &run.providers[column.provider].0;
    let mut row = Row {
        id: uuid::Uuid::new_v4().to_string(),
        description: plan.case().description.clone(),
        prompt: PromptText {
            raw: text.raw.clone(),
            label: compacted(text.label.clone()),
            config: Some(prompt_config(run, plan, &Object::new())),
        },
        prompt_id: text.id(),
        prompt_idx: plan.prompt_idx,
        test_idx: plan.test_idx,
        provider: ProviderName { id: spec.id.clone(), label: spec.label.clone().unwrap_or_default() },
        vars: plan.vars().clone(),
        test_case: plan.test.raw().clone(),
        cost: Some(0.0),
        metadata: plan.case().metadata.clone(),
        token_usage: Some(counted_usage()),
        ..Row::default()
    };
    show_vars(&mut row);
    row
}

/// Writes the variables of a row into its test, both as documents have them.
fn show_vars(row: &mut Row) {
    for value in row.vars.values_mut() {
        if let Value::String(text) = value {
            compact(text);
        }
    }
    row.test_case.insert("vars".to_owned(), Value::Object(row.vars.clone()));
}

fn compacted(mut text: String) -> String {
    compact(&mut text);
    text
}

/// Writes JSON without spaces, as documents of promptfoo have prompts and variables that are JSON.
fn compact(text: &mut String) {
    if text.starts_with(['{', '['])
        && let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text)
    {
        *text = value.to_string();
    }
}

/// The key under which documents of promptfoo list the files of variables that are pictures and sounds.
const FILES: &str = "_promptfooFileMetadata";

fn fail(row: &mut Row, error: String) {
    row.success = false;
    row.score = 0.0;
    row.error = Some(error);
    row.failure_reason = Failure::Error;
}

/// Fills in a row. The error is the reason why it has no verdict.
async fn fill(run: &Run, plan: &Plan, row: &mut Row) -> Result<(), RowError> {
    let seen = variables(run, plan, row).await?;
    let (rendered, own) = render(run, plan, &seen).await?;
    let mut vars = seen.clone();
    RUNTIME_VARS.iter().for_each(|name| drop(vars.shift_remove(*name)));
    row.prompt.raw.clone_from(&rendered);
    compact(&mut row.prompt.raw);
    let (spec, provider) = &run.providers[run.columns[plan.prompt_idx].provider];
    row.prompt.config = Some(prompt_config(run, plan, &own));
    let config = configuration(run, plan, (spec, &**provider), &seen, &own)?;
    // A given answer has no trace.
    let traced = plan.case().provider_output.is_none() && run.is_traced(plan.case());
    let traced = traced.then(|| run.traces.begin());
    row.trace_id = traced.as_ref().map(|traced| traced.id().to_owned());
    let mut response = answer(
        run,
        plan,
        row,
        &Asked { rendered: &rendered, vars: &seen, config: &config, own: &own, traced: traced.as_ref() },
    )
    .await?;
    let column = run.columns[plan.prompt_idx];
    let (spec, text) = (&run.providers[column.provider].0, &run.prompts[column.prompt]);
    let own = run.memory.keep_turn(plan, spec.name(), &text.id(), &rendered, &response);
    transform_output(run, plan, &vars, &mut response).await?;
    run.memory.keep_output(plan, &response);
    // A run that is resumed has its conversations from the rows.
    if let Some(own) = own.filter(|own| Some(own) != response.output.as_ref()) {
        row.metadata.insert(memory::OWN_OUTPUT.to_owned(), own);
    }
    let trace = match traced.filter(|_| plan.case().assertions.iter().any(uses_trace)) {
        Some(traced) => Some(trace(run, plan, &traced).await),
        None => None,
    };
    let verdict = grade::grade(
        run,
        plan,
        row,
        &Answered { prompt: &rendered, vars: &vars, response: &response, trace: trace.as_ref() },
    )
    .await;
    // Only assertions look at it.
    response.provider_transformed_output = None;
    row.response = Some(response);
    settle(row, verdict)
}

/// Variables that say which row is run. Prompts and providers see them, assertions and documents do not.
const RUNTIME_VARS: [&str; 3] = ["__evalId", "__evalStepId", "__repeatIndex"];

fn runtime_vars(run: &Run, plan: &Plan) -> [(String, Value); 3] {
    let step = format!("test-{}-prompt-{}-repeat-{}", plan.test_idx, plan.prompt_idx, plan.repeat);
    let [eval, at, repeat] = RUNTIME_VARS.map(str::to_owned);
    [(eval, json!(run.id)), (at, json!(step)), (repeat, json!(plan.repeat))]
}

/// The variables that a prompt sees: scripts called, transformed, with those of earlier rows and of the row itself, and rendered.
async fn variables(run: &Run, plan: &Plan, row: &Row) -> Result<Object, RowError> {
    let column = run.columns[plan.prompt_idx];
    let (spec, text) = (&run.providers[column.provider].0, &run.prompts[column.prompt]);
    if let Some(error) = &plan.failed {
        return Err(RowError::TransformVars(Arc::clone(error)));
    }
    let mut vars = prompts::call_vars(run, plan, row).await?;
    run.memory.add_to(&mut vars, plan, spec.name(), &text.id());
    vars.extend(runtime_vars(run, plan));
    Ok(prompt::variables(&run.templates, &vars, run.switches(plan.case())))
}

/// Returns the rendered prompt, and the configuration that its function gave.
pub async fn render(run: &Run, plan: &Plan, vars: &Object) -> Result<(String, Object), RowError> {
    let (raw, own) = prompts::text(run, plan, vars).await?;
    let rendered = prompt::prompt(&run.templates, &raw, vars, run.switches(plan.case()));
    Ok((rendered.map_err(RowError::Prompt)?, own))
}

/// Options of tests that are settings of the evaluator. All others are settings of the provider.
const OWN_OPTIONS: &[&str] = &[
    "prefix",
    "suffix",
    "transform",
    "postprocess",
    "transformVars",
    "storeOutputAs",
    "rubricPrompt",
    "provider",
    "factuality",
    "disableVarExpansion",
    "disableConversationVar",
    "disableDefaultAsserts",
    "disableTemplating",
    "runSerially",
    "repeat",
    "timeoutMs",
];

/// The configuration of the prompt, with what its function gave over it, then the options of the test.
fn prompt_config(run: &Run, plan: &Plan, own: &Object) -> Object {
    let mut config = run.prompts[run.columns[plan.prompt_idx].prompt].config.clone().unwrap_or_default();
    config.extend(own.clone());
    config.extend(plan.case().options.clone());
    config
}

/// Returns the configuration of a provider, with that of the prompt merged over it, then what the prompt's function gave, then the
/// options of the test.
///
/// # Errors
/// If a template in it is broken.
pub fn configuration(
    run: &Run,
    plan: &Plan,
    (spec, provider): (&ProviderSpec, &dyn Provider),
    vars: &Object,
    own: &Object,
) -> Result<Object, RowError> {
    let for_provider = |mut options: Object| {
        options.retain(|key, _| !OWN_OPTIONS.contains(&key.as_str()));
        options
    };
    let rendered = |config: Object| match run.templates.render_value(&Value::Object(config), vars)? {
        Value::Object(config) => Ok::<_, RowError>(config),
        _ => Ok(Object::new()),
    };
    let mut merged = spec.config.clone();
    merged.extend(for_provider(prompt_config(run, plan, &Object::new())));
    let mut of_test = for_provider(plan.case().options.clone());
    if !provider.renders_config() {
        (merged, of_test) = (rendered(merged)?, rendered(of_test)?);
    }
    // A function gives what is meant, and no templates.
    merged.extend(own.clone());
    merged.extend(of_test);
    Ok(merged)
}

/// Whether an assertion may look at the trace of its row.
fn uses_trace(assertion: &Assertion) -> bool {
    let kind = assertion.kind.as_str();
    kind.starts_with("trace-")
        || kind.starts_with("trajectory:")
        || matches!(kind, "javascript" | "python" | "ruby")
        || assertion.value.as_ref().and_then(Value::as_str).is_some_and(|value| value.starts_with("file://"))
        || assertion.children.iter().any(uses_trace)
}

/// The name of a row's test and column in its trace.
fn test_case_id(plan: &Plan) -> String {
    let own = plan.case().metadata.get("testCaseId").or_else(|| plan.test.raw().get("id"));
    own.map_or_else(|| format!("{}-{}", plan.test_idx, plan.prompt_idx), to_text)
}

/// The trace of a row whose provider has answered.
async fn trace(run: &Run, plan: &Plan, traced: &Traced) -> Trace {
    let mut metadata = Object::new();
    metadata.insert("testIdx".to_owned(), json!(plan.test_idx));
    metadata.insert("promptIdx".to_owned(), json!(plan.prompt_idx));
    metadata.insert("vars".to_owned(), Value::Object(plan.vars().clone()));
    if !run.tracing.command_tools.is_empty() {
        metadata.insert("commandToolNames".to_owned(), json!(run.tracing.command_tools));
    }
    let spans = traced.collected(run.workers.env()).await;
    traced.trace(spans, &run.id, test_case_id(plan), metadata)
}

/// The question of a row to its provider.
#[derive(Clone, Copy)]
struct Asked<'a> {
    rendered: &'a str,
    vars: &'a Object,
    config: &'a Object,
    /// The configuration that the function of the prompt gave.
    own: &'a Object,
    /// The trace that the provider adds to.
    traced: Option<&'a Traced>,
}

/// The answer of the provider, or the one that the test has. What it cost is noted in the row, also when it is an error.
async fn answer(
    run: &Run,
    plan: &Plan,
    row: &mut Row,
    asked: &Asked<'_>,
) -> Result<ProviderResponse, RowError> {
    let (spec, _) = &run.providers[run.columns[plan.prompt_idx].provider];
    let given = plan.case().provider_output.as_ref();
    let (response, latency) = match given {
        Some(output) => {
            (ProviderResponse { output: Some(output.clone()), ..ProviderResponse::default() }, 0.0)
        }
        None => call(run, plan, asked).await,
    };
    row.latency_ms = response.latency_ms.unwrap_or(latency);
    row.cost = response.charge();
    row.metadata.extend(response.metadata.clone().unwrap_or_default());
    let session =
        response.session_id.clone().map(Value::String).or_else(|| asked.vars.get("sessionId").cloned());
    if let Some(session) = session.filter(|_| !row.metadata.contains_key("sessionIds")) {
        row.metadata.entry("sessionId").or_insert(session);
    }
    row.metadata.entry(FILES).or_insert_with(|| json!({}));
    let mut usage = counted_usage();
    let spent = response.token_usage.clone().unwrap_or_default();
    add_tokens(&mut usage, &spent);
    // An answer that does not count its requests took one; one that was given took none.
    if spent.num_requests.is_none() && given.is_none() {
        usage.num_requests = Some(1.0);
    }
    row.token_usage = Some(usage);
    let delay = spec.delay.or(run.options.delay).filter(|delay| *delay > 0.0 && given.is_none());
    if let Some(delay) = delay {
        tokio::time::sleep(Duration::from_secs_f64(delay / 1000.0)).await;
    }
    let error = match (&response.error, &response.output) {
        (Some(error), _) => RowError::Answer(error.clone()),
        (None, None) => RowError::NoOutput,
        (None, Some(_)) => return Ok(response),
    };
    row.response = Some(response);
    Err(error)
}

/// Applies the transform of the provider, then that of the test.
async fn transform_output(
    run: &Run,
    plan: &Plan,
    vars: &Object,
    response: &mut ProviderResponse,
) -> Result<(), RowError> {
    let column = run.columns[plan.prompt_idx];
    let (spec, text) = (&run.providers[column.provider].0, &run.prompts[column.prompt]);
    let options = &plan.case().options;
    let own = options.get("transform").or_else(|| options.get("postprocess"));
    let prompt = shown_prompt(text, text.config.clone().unwrap_or_default());
    let context = || json!({"vars": vars, "prompt": prompt});
    if let Some(code) = &spec.transform {
        let output = response.output.take().unwrap_or_default();
        let changed = transform::apply(code, output, context(), "output", &run.workers).await;
        response.output = Some(changed?);
    }
    response.provider_transformed_output.clone_from(&response.output);
    if let Some(code) = own {
        let output = response.output.take().unwrap_or_default();
        let mut context = context();
        if let Some(metadata) = &response.metadata {
            context["metadata"] = json!(metadata);
        }
        let changed = transform::apply(code, output, context, "output", &run.workers).await;
        response.output = Some(changed?);
    }
    Ok(())
}

/// Takes the verdict over into the row.
fn settle(row: &mut Row, verdict: GradingResult) -> Result<(), RowError> {
    row.success = verdict.pass;
    row.score = verdict.score;
    row.named_scores = verdict.named_scores.clone().unwrap_or_default();
    if let Some(usage) = &mut row.token_usage {
        let mut spent = zero_usage();
        add_tokens(&mut spent, verdict.tokens_used.as_ref().unwrap_or(&TokenUsage::default()));
        // Grading a row counts as one request, however many models it asks.
        spent.num_requests = Some(1.0);
        usage.assertions = Some(Box::new(spent));
    }
    let row_error = verdict.row_error.clone();
    if !verdict.pass {
        row.failure_reason = Failure::Assertion;
        row.error = Some(verdict.reason.clone());
    }
    row.grading_result = Some(verdict);
    row_error.map_or(Ok(()), |error| Err(RowError::Verdict(error)))
}

/// A prompt as scripts see it: its text is the template.
fn shown_prompt(text: &Prompt, config: Object) -> Value {
    json!({"raw": text.raw, "template": text.raw, "label": text.label, "config": config})
}

async fn call(run: &Run, plan: &Plan, asked: &Asked<'_>) -> (ProviderResponse, f64) {
    let column = run.columns[plan.prompt_idx];
    let (spec, provider) = &run.providers[column.provider];
    let other = plan.test.raw().get("provider").filter(|other| !other.is_null());
    let mut context = if provider.id() == "echo" && other.is_none() {
        Value::Null
    } else {
        let config = prompt_config(run, plan, asked.own);
        json!({
            "vars": asked.vars, "prompt": shown_prompt(&run.prompts[column.prompt], config),
            "test": *plan.test.raw(),
            "evaluationId": run.id, "testIdx": plan.test_idx, "promptIdx": plan.prompt_idx, "repeatIndex": plan.repeat,
        })
    };
    if let Value::Object(context) = &mut context {
        // Nothing where the provider that is called is that of the row itself.
        let original = other.map(|_| json!({"id": spec.id, "label": spec.label, "config": spec.config}));
        context.insert(ORIGINAL.to_owned(), original.unwrap_or_default());
        let filters = run.templates.filters();
        if !filters.is_empty() {
            context.insert(FILTERS.to_owned(), json!(filters));
        }
    }
    if let (Some(traced), Value::Object(context)) = (asked.traced, &mut context) {
        context.insert("traceparent".to_owned(), json!(traced.parent()));
        context.insert("testCaseId".to_owned(), json!(test_case_id(plan)));
    }
    let call = Call { prompt: asked.rendered, vars: asked.vars, config: asked.config, context: &context };
    let started = Instant::now();
    let other = other.and_then(|other| ProviderSpec::of_test(other, run.workers.base()));
    let response = match other {
        Some(other) => turns::instead(run, plan, &other, &call).await,
        None => run.models.call(&**provider, Role::Text, &call, plan.repeat).await,
    };
    (response, started.elapsed().as_millis() as f64)
}
