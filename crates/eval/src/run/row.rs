//! One row: render, call, transform, judge.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Run;
use super::expand::{Plan, RowPlan};
use super::{grade, transform};
use crate::config::prompts::Source;
use crate::model::{Failure, Object, PromptText, ProviderName, ProviderResponse, Row, TokenUsage};
use crate::provider::{Call, Role};
use crate::template::prompt;
use crate::worker::{Entry, Language, ScriptCall};

const LATE: &str = "the run took longer than its limit";

/// Runs a row, and the hooks around it. Whatever goes wrong becomes part of it.
pub async fn run(run: Arc<Run>, plan: Plan) -> Row {
    if run.hooks.are_none() {
        return between_hooks(&run, &plan.read()).await;
    }
    let mut test = (*plan.test).clone();
    test.insert("vars".to_owned(), Value::Object((*plan.vars).clone()));
    if let Err(error) = run.hooks.before_each(&mut test).await {
        return lost(&run, &plan.read(), error);
    }
    let vars = test.get("vars").and_then(Value::as_object).cloned().unwrap_or_default();
    let own = Plan { test: Arc::new(test), vars: Arc::new(vars), ..plan };
    let mut row = between_hooks(&run, &own.read()).await;
    // Nothing of the row is lost when a hook fails, but what it would have added.
    if let Err(error) = run.hooks.after_each(&own.test, &mut row).await {
        tracing::warn!(test = row.test_idx, "{error}");
    }
    row
}

async fn between_hooks(run: &Run, plan: &RowPlan) -> Row {
    let mut row = begin(run, plan);
    let left = run.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        fail(&mut row, LATE.to_owned());
        return row;
    }
    let own = run.settings.row_limit;
    let limit = own.into_iter().chain(left).min().unwrap_or(Duration::from_secs(365 * 86_400));
    match tokio::time::timeout(limit, fill(run, plan, &mut row)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => fail(&mut row, error),
        Err(_) if left == Some(limit) => fail(&mut row, LATE.to_owned()),
        Err(_) => fail(&mut row, format!("the row took longer than {} ms", limit.as_millis())),
    }
    row
}

/// A row that could not be run.
pub fn lost(run: &Run, plan: &RowPlan, error: String) -> Row {
    let mut row = begin(run, plan);
    fail(&mut row, error);
    row
}

fn begin(run: &Run, plan: &RowPlan) -> Row {
    let column = run.columns[plan.prompt_idx];
    let text = &run.prompts[column.prompt];
    let spec = &run.providers[column.provider].0;
    let mut row = Row {
        id: uuid::Uuid::new_v4().to_string(),
        description: plan.test.description.clone(),
        prompt: PromptText { raw: text.raw.clone(), label: text.label.clone(), config: text.config.clone() },
        prompt_id: text.id(),
        prompt_idx: plan.prompt_idx,
        test_idx: plan.test_idx,
        provider: ProviderName { id: spec.id.clone(), label: spec.label.clone().unwrap_or_default() },
        vars: (*plan.vars).clone(),
        test_case: plan.test.raw.clone(),
        ..Row::default()
    };
    row.test_case.insert("vars".to_owned(), Value::Object(row.vars.clone()));
    row
}

fn fail(row: &mut Row, error: String) {
    row.success = false;
    row.score = 0.0;
    row.error = Some(error);
    row.failure_reason = Failure::Error;
}

async fn fill(run: &Run, plan: &RowPlan, row: &mut Row) -> Result<(), String> {
    let column = run.columns[plan.prompt_idx];
    let (spec, provider) = &run.providers[column.provider];
    let text = &run.prompts[column.prompt];
    let mut vars = call_vars(run, plan, row).await?;
    if let Some(code) = plan.test.options.get("transformVars") {
        let context = json!({"prompt": {"label": text.label}, "uuid": row.id});
        let changed =
            transform::apply(code, Value::Object(vars.clone()), context, "vars", &run.services).await?;
        let Value::Object(changed) = changed else {
            return Err("`transformVars` must give an object".to_owned());
        };
        vars.extend(changed.clone());
        row.vars.extend(changed);
    }
    run.memory.add_to(&mut vars, plan, &spec.id, &text.id());
    let switches = run.switches(&plan.test);
    let vars = prompt::variables(&run.templates, &vars, switches);
    let (raw, mut config) = prompt_text(run, plan, &vars).await?;
    let rendered = if text.source == Source::Text {
        prompt::prompt(&run.templates, &raw, &vars, switches)
            .map_err(|error| format!("the prompt cannot be rendered: {error}"))?
    } else {
        raw
    };
    row.prompt.raw.clone_from(&rendered);

    let mut merged = Value::Object(spec.config.clone());
    if !provider.renders_config() {
        merged = run.templates.render_value(&merged, &vars).map_err(|error| error.to_string())?;
    }
    if let Value::Object(map) = &mut merged {
        map.extend(text.config.clone().unwrap_or_default());
        map.append(&mut config);
    }
    let merged = merged.as_object().cloned().unwrap_or_default();
    let (mut response, latency) = match &plan.test.provider_output {
        Some(output) => {
            (ProviderResponse { output: Some(output.clone()), ..ProviderResponse::default() }, 0.0)
        }
        None => call(run, plan, &**provider, &rendered, &vars, &merged).await,
    };
    row.latency_ms = response.latency_ms.unwrap_or(latency);
    row.cost = response.cost.filter(|_| response.cached != Some(true)).unwrap_or(0.0);
    row.metadata = response.metadata.clone().unwrap_or_default();
    row.token_usage = Some(response.token_usage.clone().unwrap_or_else(|| TokenUsage {
        num_requests: Some(1.0),
        ..crate::assertion::aggregate::zero_tokens()
    }));
    if let Some(delay) =
        spec.delay.or(run.settings.delay).filter(|delay| *delay > 0.0 && plan.test.provider_output.is_none())
    {
        tokio::time::sleep(Duration::from_secs_f64(delay / 1000.0)).await;
    }
    if let Some(error) = &response.error {
        let error = error.clone();
        row.response = Some(response);
        return Err(error);
    }
    if response.output.is_none() {
        row.response = Some(response);
        return Err("No output".to_owned());
    }
    let context =
        json!({"vars": vars, "prompt": {"raw": rendered, "label": text.label}, "metadata": row.metadata});
    if let Some(code) = &spec.transform {
        let output = response.output.take().unwrap_or_default();
        response.output =
            Some(transform::apply(code, output, context.clone(), "output", &run.services).await?);
    }
    response.provider_transformed_output.clone_from(&response.output);
    if let Some(code) = plan.test.options.get("transform").or_else(|| plan.test.options.get("postprocess")) {
        let output = response.output.take().unwrap_or_default();
        response.output = Some(transform::apply(code, output, context, "output", &run.services).await?);
    }
    run.memory.keep(plan, &spec.id, &text.id(), &rendered, &response);
    let verdict = grade::grade(run, plan, row, &rendered, &vars, &response).await;
    let mut shown = response;
    if shown.provider_transformed_output == shown.output {
        shown.provider_transformed_output = None;
    }
    row.response = Some(shown);
    row.success = verdict.pass;
    row.score = verdict.score;
    row.named_scores = verdict.named_scores.clone().unwrap_or_default();
    if let (Some(usage), Some(tokens)) = (&mut row.token_usage, &verdict.tokens_used) {
        usage.assertions = Some(Box::new(tokens.clone()));
    }
    let row_error = verdict.row_error.clone();
    if !verdict.pass {
        row.failure_reason = Failure::Assertion;
        row.error = Some(verdict.reason.clone());
    }
    row.grading_result = Some(verdict);
    match row_error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The row's variables, with those that are scripts called.
async fn call_vars(run: &Run, plan: &RowPlan, row: &Row) -> Result<Object, String> {
    let mut vars = (*plan.vars).clone();
    for (name, value) in &*plan.vars {
        let Value::String(reference) = value else { continue };
        if !reference.starts_with("file://") || !super::expand::is_code(reference) {
            continue;
        }
        let (path, function) = crate::config::files::split_name(reference);
        let python = crate::config::files::extension(reference) == "py";
        let default: &[&str] = if python { &["get_var"] } else { &["default"] };
        let script = ScriptCall {
            language: if python { Language::Python } else { Language::JavaScript },
            entry: Entry::Function {
                path: run.services.base.join(path),
                name: function.map(str::to_owned),
                default,
            },
            arguments: vec![json!(name), json!(row.prompt.raw), json!(*plan.vars), json!(row.provider)],
            time_limit: Duration::from_secs(60),
            interpreter: None,
            isolated: false,
        };
        let mut script = script;
        if python {
            script.arguments.truncate(3);
        }
        let reply = run
            .services
            .workers
            .call(script)
            .await
            .map_err(|error| format!("the variable `{name}`: {error}"))?;
        match reply.value {
            Value::Object(mut map) if map.contains_key("output") => {
                vars.insert(name.clone(), map.shift_remove("output").unwrap_or_default());
            }
            Value::Object(map) if map.contains_key("error") => {
                return Err(format!(
                    "the variable `{name}`: {}",
                    crate::template::value::to_text(&map["error"])
                ));
            }
            _ => {
                return Err(format!("the function of the variable `{name}` must return `output` or `error`"));
            }
        }
    }
    Ok(vars)
}

/// The prompt before rendering, and settings its function gave.
async fn prompt_text(run: &Run, plan: &RowPlan, vars: &Object) -> Result<(String, Object), String> {
    let column = run.columns[plan.prompt_idx];
    let text = &run.prompts[column.prompt];
    let spec = &run.providers[column.provider].0;
    let context = || json!({"vars": vars, "provider": {"id": spec.id, "label": spec.label}, "config": text.config.clone().unwrap_or_default()});
    let affix = |key: &str| plan.test.options.get(key).and_then(Value::as_str).unwrap_or_default();
    match &text.source {
        Source::Text => Ok((format!("{}{}{}", affix("prefix"), text.raw, affix("suffix")), Object::new())),
        Source::Command(command) => {
            let limit = Duration::from_secs(60);
            let said = crate::provider::exec::run(
                command,
                &[context().to_string()],
                &run.services.base,
                &run.services.env,
                limit,
            )
            .await?;
            Ok((said, Object::new()))
        }
        Source::Script { path, name } => {
            let python = crate::config::files::extension(&path.to_string_lossy()) == "py";
            if python && name.is_none() {
                let interpreter =
                    run.services.env("PROMPTFOO_PYTHON").unwrap_or_else(|| "python3".to_owned());
                let command = [interpreter, path.to_string_lossy().into_owned()];
                let limit = Duration::from_secs(60);
                let said = crate::provider::exec::run(
                    &command,
                    &[context().to_string()],
                    &run.services.base,
                    &run.services.env,
                    limit,
                )
                .await?;
                return Ok((said, Object::new()));
            }
            let script = ScriptCall {
                language: if python { Language::Python } else { Language::JavaScript },
                entry: Entry::Function { path: path.clone(), name: name.clone(), default: &["default"] },
                arguments: vec![context()],
                time_limit: Duration::from_secs(60),
                interpreter: None,
                isolated: false,
            };
            let reply = run
                .services
                .workers
                .call(script)
                .await
                .map_err(|error| format!("the prompt function: {error}"))?;
            let as_text = |value: Value| match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            Ok(match reply.value {
                Value::Object(mut map) if map.contains_key("prompt") => {
                    let config = map.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
                    (as_text(map.shift_remove("prompt").unwrap_or_default()), config)
                }
                other => (as_text(other), Object::new()),
            })
        }
    }
}

async fn call(
    run: &Run,
    plan: &RowPlan,
    provider: &dyn crate::provider::Provider,
    rendered: &str,
    vars: &Object,
    config: &Object,
) -> (ProviderResponse, f64) {
    let column = run.columns[plan.prompt_idx];
    let text = &run.prompts[column.prompt];
    let step = format!("test-{}-prompt-{}-repeat-{}", plan.test_idx, plan.prompt_idx, plan.repeat);
    let mut vars = vars.clone();
    vars.insert("__evalId".to_owned(), json!(run.id));
    vars.insert("__evalStepId".to_owned(), json!(step));
    vars.insert("__repeatIndex".to_owned(), json!(plan.repeat));
    let context = if provider.id() == "echo" {
        Value::Null
    } else {
        json!({
            "vars": vars, "prompt": {"raw": rendered, "label": text.label, "config": text.config}, "test": plan.test.raw,
            "evaluationId": run.id, "testIdx": plan.test_idx, "promptIdx": plan.prompt_idx, "repeatIndex": plan.repeat,
        })
    };
    let call = Call { prompt: rendered, vars: &vars, config, context: &context, services: &run.services };
    let started = Instant::now();
    let response = run.services.answers.call(provider, Role::Text, &call, plan.repeat).await;
    (response, started.elapsed().as_millis() as f64)
}
