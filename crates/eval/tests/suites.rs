//! Small suites from the file to the verdicts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;

use sandcove_eval::config::{self, LoadOptions};
use sandcove_eval::model::{Evaluation, Failure, Row};
use sandcove_eval::reading::{Diagnostic, Findings};
use sandcove_eval::run::{self, Control, End, Outcome, RunOptions, Start};
use sandcove_eval::store::recording::{Storage, Which};

/// Sums of a suite, and its rows.
struct Results {
    evaluation: Evaluation,
    rows: Vec<Row>,
}

/// Findings about a suite, and its results if it could be run.
async fn evaluate(text: &str, concurrency: usize) -> (Vec<String>, Option<Results>) {
    evaluate_with(text, &[], concurrency).await
}

/// Findings about a suite that stands beside files, and its results if it could be run.
async fn evaluate_with(
    text: &str,
    files: &[(&str, &str)],
    concurrency: usize,
) -> (Vec<String>, Option<Results>) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in std::iter::once(&("promptfooconfig.yaml", text)).chain(files) {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let mut findings = Findings::default();
    let options = LoadOptions { directory: directory.path().to_owned(), ..LoadOptions::default() };
    let suite = config::load(&options, &mut findings).await;
    let shorten = |finding: &Diagnostic| {
        finding.to_string().replace(&format!("{}/", Path::new(directory.path()).display()), "")
    };
    let told = findings.all().iter().map(shorten).collect();
    let Ok(suite) = suite else { return (told, None) };
    let options = RunOptions { concurrency, cache: false, ..RunOptions::default() };
    let control = Control {
        start: Start::New { storage: Storage::Temporary, invocation: serde_json::Value::Null },
        interrupts: tokio::sync::mpsc::channel(1).1,
        observer: Arc::new(()),
    };
    let Outcome { evaluation, mut rows, end, .. } = run::run(suite, options, control).await.unwrap();
    assert_eq!(end, End::Finished);
    (told, Some(Results { evaluation, rows: rows.rows(Which::All).await.unwrap() }))
}

const HEAD: &str = "prompts: ['Say {{word}}']\nproviders: [echo]\n";

#[tokio::test]
async fn rows_are_judged_and_added_up() {
    let text = format!(
        "{HEAD}defaultTest: {{assert: [{{type: contains, value: '{{{{word}}}}', metric: has}}]}}\n\
         derivedMetrics: [{{name: mean, value: has / __count}}]\n\
         tests:\n  - vars: {{word: [hi, ho]}}\n    assert: [{{type: javascript, value: output.length === 6}}]\n\
         \x20 - vars: {{word: x}}\n    assert: [{{type: equals, value: nope, weight: 3}}]\n"
    );
    let (told, results) = evaluate(&text, 4).await;
    let Results { evaluation, rows } = results.unwrap();
    assert_eq!(told, Vec::<String>::new());
    let verdicts: Vec<(bool, f64)> = rows.iter().map(|row| (row.success, row.score)).collect();
    assert_eq!(verdicts, [(true, 1.0), (true, 1.0), (false, 0.25)]);
    assert_eq!(evaluation.stats.successes, 2);
    assert_eq!(
        serde_json::json!(evaluation.columns[0].metrics.named_scores),
        serde_json::json!({"has": 3, "mean": 1})
    );
}

#[tokio::test]
async fn mistakes_are_told_with_their_place() {
    let text = format!(
        "{HEAD}tests:\n  - vars: {{word: x}}\n    assert:\n      - type: contians\n        value: x\n    treshold: 1\n"
    );
    let (told, evaluation) = evaluate(&text, 1).await;
    assert!(evaluation.is_none());
    assert_eq!(
        told,
        [
            "promptfooconfig.yaml:8:5: warning: unknown key `treshold` in a test; it has no effect\nhint: did you mean `threshold`?",
            "promptfooconfig.yaml:6:15: error: unknown assertion type `contians`\nhint: did you mean `contains`?",
        ]
    );
}

#[tokio::test]
async fn a_test_of_nothing_is_a_mistake() {
    let (told, evaluation) = evaluate(&format!("{HEAD}tests: [{{}}]\n"), 1).await;
    assert!(evaluation.is_none());
    assert!(
        told[0].starts_with("promptfooconfig.yaml:3:9: error: a test needs at least one of `vars`"),
        "{told:?}"
    );
}

#[tokio::test]
async fn the_order_of_rows_does_not_depend_on_who_is_first() {
    let tests: String = (0..40).map(|n| format!("  - vars: {{word: w{n}}}\n")).collect();
    let (_, evaluation) = evaluate(&format!("{HEAD}tests:\n{tests}"), 16).await;
    let order: Vec<usize> = evaluation.unwrap().rows.iter().map(|row| row.test_idx).collect();
    assert_eq!(order, (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transform_of_a_test_is_used_and_told() {
    let text = format!(
        "{HEAD}tests:\n  - vars: {{word: x}}\n    transform: output.toUpperCase()\n    assert: [{{type: equals, value: SAY X}}]\n"
    );
    let (told, evaluation) = evaluate(&text, 1).await;
    assert!(told[0].contains("taken as `options.transform`"), "{told:?}");
    assert!(evaluation.unwrap().rows[0].success);
}

#[tokio::test]
async fn a_script_that_breaks_keeps_the_other_verdicts() {
    let text = format!(
        "{HEAD}tests:\n  - vars: {{word: x}}\n    assert:\n      - {{type: contains, value: x}}\n      - {{type: cost, threshold: 1, transform: 'null'}}\n"
    );
    let (_, evaluation) = evaluate(&text, 1).await;
    let row = evaluation.unwrap().rows.remove(0);
    assert!(!row.success && row.error.is_some());
    let verdicts: Vec<bool> =
        row.grading_result.unwrap().component_results.unwrap().iter().map(|result| result.pass).collect();
    assert_eq!(verdicts, [true, false]);
}

#[tokio::test]
async fn options_of_tests_come_after_the_prompt_function_and_the_prompt() {
    let text = "prompts: [{id: 'file://prompt.cjs', label: p, config: {a: prompt, b: prompt, c: prompt}}]\n\
                providers: ['file://provider.cjs']\n\
                tests: [{vars: {word: x}, options: {c: test}}]\n";
    let prompt = "module.exports = () => ({prompt: 'hi', config: {b: 'function', c: 'function'}})";
    let provider = "module.exports = class {\n\
                    id() { return 'own' }\n\
                    async callApi(prompt, context) { return {output: context.prompt.config} }\n}";
    let (_, results) = evaluate_with(text, &[("prompt.cjs", prompt), ("provider.cjs", provider)], 1).await;
    let row = results.unwrap().rows.remove(0);
    let expected = serde_json::json!({"a": "prompt", "b": "function", "c": "test"});
    assert_eq!(row.response.unwrap().output, Some(expected.clone()));
    assert_eq!(serde_json::json!(row.prompt.config), expected);
}

#[tokio::test]
async fn what_is_no_json_fails_whatever_the_schema() {
    let text = format!(
        "{HEAD}tests:\n  - vars: {{word: x}}\n    assert: [{{type: is-json, value: {{type: nonsense}}}}]\n\
         \x20 - vars: {{word: x}}\n    assert: [{{type: contains-json, value: {{type: nonsense}}}}]\n\
         \x20 - vars: {{word: '{{\"a\": 1}}'}}\n    assert: [{{type: contains-json, value: {{type: nonsense}}}}]\n"
    );
    let (_, results) = evaluate(&text, 1).await;
    let reasons: Vec<Failure> = results.unwrap().rows.iter().map(|row| row.failure_reason).collect();
    assert_eq!(reasons, [Failure::Assertion, Failure::Assertion, Failure::Error]);
}
