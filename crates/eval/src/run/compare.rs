//! Assertions that compare all answers to one test: `max-score` and `select-best`.

use serde_json::{Value, json};

use super::Run;
use super::error::RowError;
use crate::assertion::judge;
use crate::calling::spec::ProviderSpec;
use crate::calling::{Call, Role};
use crate::config::assertions;
use crate::grading::aggregate::{add_tokens, counted_usage, zero_tokens};
use crate::model::{Assertion, Failure, GradingResult, Object, Row, TokenUsage};
use crate::template::prompt;
use crate::template::value::{to_number, to_text};

/// Whether a test asks for its rows to be compared.
pub fn is_asked(test: &Object) -> bool {
    let kinds = test.get("assert").and_then(Value::as_array).into_iter().flatten();
    kinds.filter_map(|assertion| assertion.get("type")?.as_str()).any(compares)
}

fn compares(kind: &str) -> bool {
    matches!(kind, "max-score" | "select-best")
}

/// Whether the rows of a test were compared before.
pub fn is_done(rows: &[Row]) -> bool {
    let components =
        rows.iter().flat_map(|row| &row.grading_result).flat_map(|verdict| &verdict.component_results);
    let mut kinds =
        components.flatten().filter_map(|component| component.assertion.as_ref()?.get("type")?.as_str());
    kinds.any(compares)
}

/// Compares the rows of one test.
pub async fn compare(run: &Run, rows: &mut [Row]) {
    let Some(first) = rows.first() else { return };
    let asserts = assertions::of_value(first.test_case.get("assert"));
    for assertion in asserts.iter().filter(|assertion| compares(&assertion.kind)) {
        let verdicts = if assertion.kind == "max-score" {
            max_score(assertion, rows)
        } else {
            select_best(run, assertion, rows).await
        };
        for (row, verdict) in rows.iter_mut().zip(verdicts) {
            apply(row, verdict, assertion);
        }
    }
}

fn apply(row: &mut Row, mut verdict: GradingResult, assertion: &Assertion) {
    verdict.assertion = Some(Value::Object(assertion.raw.clone()));
    if row.failure_reason == Failure::Error {
        return;
    }
    let Some(whole) = &mut row.grading_result else { return };
    if !verdict.pass {
        // What a model says of the answer also stands before the reason of a check that failed.
        if row.success || assertion.kind == "select-best" {
            whole.reason.clone_from(&verdict.reason);
        }
        row.score = verdict.score;
        whole.score = verdict.score;
    }
    if !verdict.pass && row.success {
        row.success = false;
        row.failure_reason = Failure::Assertion;
        row.error = Some(verdict.reason.clone());
        whole.pass = false;
    }
    if let (true, Some(named)) = (assertion.kind == "max-score", &verdict.named_scores) {
        whole.named_scores.get_or_insert_default().extend(named.clone());
        whole.assertion.clone_from(&verdict.assertion);
    }
    if let Some(tokens) = &verdict.tokens_used {
        add_tokens(whole.tokens_used.get_or_insert_with(zero_tokens), tokens);
        let grading = row.token_usage.get_or_insert_with(counted_usage).assertions.get_or_insert_default();
        add_tokens(grading, &TokenUsage { num_requests: None, completion_details: None, ..tokens.clone() });
    }
    whole.component_results.get_or_insert_default().push(verdict);
}

fn max_score(assertion: &Assertion, rows: &[Row]) -> Vec<GradingResult> {
    if rows.len() < 2 {
        return rows
            .iter()
            .map(|_| GradingResult::failed("max-score needs at least two outputs to choose from"))
            .collect();
    }
    let setting = |key: &str| assertion.value.as_ref().and_then(|value| value.get(key));
    let sum = setting("method").and_then(Value::as_str) == Some("sum");
    let scores: Vec<(f64, f64, usize)> = rows
        .iter()
        .map(|row| {
            let components =
                row.grading_result.iter().flat_map(|result| result.component_results.iter().flatten());
            let (mut total, mut weights, mut count) = (0.0, 0.0, 0);
            for component in components {
                let own = component.assertion.as_ref();
                let kind = own.and_then(|own| own.get("type")).and_then(Value::as_str).unwrap_or_default();
                if compares(kind) {
                    continue;
                }
                let given = setting("weights").and_then(|weights| weights.get(kind)).and_then(Value::as_f64);
                let weight = given.unwrap_or(1.0);
                total += component.score * weight;
                weights += weight;
                count += 1;
            }
            let score = if sum {
                total
            } else if weights > 0.0 {
                total / weights
            } else {
                0.0
            };
            (score, weights, count)
        })
        .collect();
    let best = scores.iter().map(|(score, ..)| *score).fold(f64::NEG_INFINITY, f64::max);
    let winner = scores.iter().position(|(score, ..)| *score == best);
    let threshold = setting("threshold").map(to_number);
    let enough = threshold.is_none_or(|threshold| best >= threshold);
    scores
        .iter()
        .enumerate()
        .map(|(at, (score, weights, count))| {
            let mut result = if Some(at) == winner && enough {
                GradingResult::passed(1.0, format!("Selected as highest scoring output (score: {score:.3})"))
            } else if Some(at) == winner {
                GradingResult::failed(format!(
                    "Not selected - score {score:.3} below threshold {}",
                    threshold.unwrap_or_default()
                ))
            } else {
                GradingResult::failed(format!("Not selected (score: {score:.3}, max: {best:.3})"))
            };
            let mut named = Object::new();
            named.insert("maxScore".to_owned(), crate::model::number_value(*score));
            named.insert("assertionCount".to_owned(), json!(count));
            named.insert("totalWeight".to_owned(), crate::model::number_value(*weights));
            result.named_scores = Some(named);
            result
        })
        .collect()
}

const SELECT: &str = "Several outputs were given for the same task. Choose the one that meets the criterion best.\n\n\
{% for output in outputs %}<output index=\"{{ loop.index0 }}\">\n{{ output }}\n</output>\n{% endfor %}\
<criterion>\n{{ criteria }}\n</criterion>\n\nAnswer with the index of the best output and nothing else.";

async fn select_best(run: &Run, assertion: &Assertion, rows: &[Row]) -> Vec<GradingResult> {
    let all = |result: &GradingResult| rows.iter().map(|_| result.clone()).collect();
    if rows.len() < 2 {
        return all(&GradingResult::failed("select-best needs at least two outputs to choose from"));
    }
    let criteria = assertion.value.as_ref().map(to_text).unwrap_or_default();
    let first = &rows[0];
    let criteria = run.templates.render(&criteria, &first.vars).unwrap_or(criteria);
    let outputs: Vec<Value> = rows
        .iter()
        .map(|row| row.response.as_ref().and_then(|response| response.output.clone()).unwrap_or_default())
        .collect();
    let options = first.test_case.get("options");
    let given =
        assertion.rubric_prompt.as_ref().or_else(|| options.and_then(|options| options.get("rubricPrompt")));
    let template = match judge::template(run.workers.base(), given, SELECT) {
        Ok(template) => template,
        Err(error) => return all(&GradingResult::failed(error.to_string())),
    };
    let (text, tokens) = match ask(run, assertion, first, &template, &criteria, &outputs).await {
        Ok(answer) => answer,
        Err(error) => return all(&GradingResult::failed(error.to_string())),
    };
    let chosen = text.split(|c: char| !c.is_ascii_digit()).find_map(|digits| digits.parse::<usize>().ok());
    let Some(chosen) = chosen.filter(|chosen| *chosen < rows.len()) else {
        let failed = GradingResult::failed("the grader did not name one of the outputs");
        return all(&GradingResult { tokens_used: tokens, ..failed });
    };
    (0..rows.len())
        .map(|at| match at == chosen {
            true => GradingResult::passed(1.0, format!("Output selected as the best: {criteria}")),
            false => GradingResult::failed(format!("Output not selected: {criteria}")),
        })
        .map(|result| GradingResult { tokens_used: tokens.clone(), ..result })
        .collect()
}

async fn ask(
    run: &Run,
    assertion: &Assertion,
    row: &Row,
    template: &str,
    criteria: &str,
    outputs: &[Value],
) -> Result<(String, Option<TokenUsage>), RowError> {
    let options = row.test_case.get("options");
    let named = assertion.provider.as_ref().or_else(|| options.and_then(|options| options.get("provider")));
    let spec = match named.and_then(|value| ProviderSpec::from_value(value, run.workers.base())) {
        Some(spec) => spec,
        None => ProviderSpec::new("openai:chat:gpt-5.5-2026-04-23", run.workers.base()),
    };
    let mut vars = row.vars.clone();
    vars.insert("outputs".to_owned(), json!(outputs));
    vars.insert("criteria".to_owned(), json!(criteria));
    let text = prompt::prompt(&run.templates, template, &vars, prompt::Switches::default())?;
    let context = json!({"vars": vars, "prompt": {"raw": text, "label": "select-best"}});
    let call = Call { prompt: &text, vars: &vars, config: &spec.config, context: &context };
    // A repetition is a test of its own here.
    let response = run.models.ask(&spec, Role::Text, &call, row.test_idx).await?;
    match response.error {
        Some(error) => Err(RowError::Grader { id: spec.id, error }),
        None => {
            Ok((response.output.map(|output| to_text(&output)).unwrap_or_default(), response.token_usage))
        }
    }
}
