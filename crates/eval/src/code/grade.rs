//! The verdicts of the code assertions.

use serde_json::{Value, json};

use super::error::{CodeError, Result};
use super::extract::{self, Block, canonical};
use super::policy::Finding;
use super::prepare::{self, Prepared};
use super::program::{self, Case};
use super::run::{self, Execution, shown};
use super::settings::CodeSettings;
use super::{memory, metrics, python, syntax, test_file};
use crate::grading::GradingContext;
use crate::model::{GradingResult, Object};
use crate::sandboxes::Sandboxes;

/// Expected value of a test that wants the safety check to refuse the answer, as the tutorial's suites write it.
const UNSAFE_WANTED: &str = "SAFE_ERROR_DETECTED";

/// The code of an answer, with the settings that it is graded by.
struct ExtractedCode {
    settings: CodeSettings,
    code: String,
    language: String,
}

impl ExtractedCode {
    /// Reads the assertion and takes the code out of the answer.
    ///
    /// # Errors
    /// The verdict when either is impossible.
    fn read(context: &GradingContext<'_>) -> Result<Self, Box<GradingResult>> {
        let read = || {
            let settings = CodeSettings::read(context.value, context.vars)?;
            let source = settings.source()?;
            Ok((settings, source))
        };
        let (settings, source) = read().map_err(|error: CodeError| Box::new(GradingResult::broken(error)))?;
        let function = settings.function.as_deref();
        let found = extract::extract(context.output_text, source, settings.language.as_deref(), function);
        let Some(Block { code, tag }) = found else {
            let start: String = context.output_text.chars().take(300).collect();
            return Err(Box::new(failed(
                context,
                "no_code_found",
                format!("no code was found in the answer: {start}"),
            )));
        };
        let language = settings.language.clone().or_else(|| canonical(&tag).map(str::to_owned));
        Ok(Self { settings, code, language: language.unwrap_or_else(|| "python".to_owned()) })
    }

    /// Returns what the policy forbids of the code.
    fn findings(&self) -> Vec<Finding> {
        let policy = self.settings.policy.for_language(&self.language);
        match self.language.as_str() {
            "python" => python::check(&self.code, &policy).unwrap_or_else(|invalid| vec![invalid]),
            "javascript" | "typescript" => syntax::check_javascript(&self.code, &policy),
            "bash" => syntax::check_bash(&self.code, &policy),
            _ => Vec::new(),
        }
    }

    /// The verdict that spares running the code, if the policy has one. What is not valid Python is left for the interpreter
    /// to say.
    fn refused(&self, context: &GradingContext<'_>) -> Option<GradingResult> {
        if self.settings.safety == Some(false) {
            return None;
        }
        let mut findings = self.findings();
        findings.retain(|finding| !finding.what.starts_with("is not valid"));
        if findings.is_empty() {
            return None;
        }
        let wanted = [&self.settings.expected_output, &self.settings.expected_stdout];
        if wanted.into_iter().flatten().any(|value| value == UNSAFE_WANTED) {
            return Some(verdict(
                context,
                1.0,
                true,
                "unsafe, as expected".to_owned(),
                self.metadata(&findings),
            ));
        }
        let reason = format!("not run, because it is unsafe: {}", listed(&findings));
        Some(verdict(context, 0.0, false, reason, self.metadata(&findings)))
    }

    fn metadata(&self, findings: &[Finding]) -> Object {
        let mut code = Object::new();
        code.insert("language".to_owned(), json!(self.language));
        code.insert("source".to_owned(), json!(shown(&self.code)));
        if !findings.is_empty() {
            code.insert("unsafe".to_owned(), json!(findings));
        }
        code
    }
}

/// Grader of `code-safety`.
pub(super) fn safety(context: &GradingContext<'_>) -> GradingResult {
    let extracted = match ExtractedCode::read(context) {
        Ok(extracted) => extracted,
        Err(verdict) => return *verdict,
    };
    let findings = extracted.findings();
    let reason = match findings.is_empty() {
        true => "nothing that the policy forbids".to_owned(),
        false => format!("unsafe: {}", listed(&findings)),
    };
    let score = if findings.is_empty() { 1.0 } else { 0.0 };
    verdict(context, score, findings.is_empty(), reason, extracted.metadata(&findings))
}

/// Grader of `code-run`.
pub(super) async fn run(context: &GradingContext<'_>) -> GradingResult {
    let extracted = match ExtractedCode::read(context) {
        Ok(extracted) => extracted,
        Err(verdict) => return *verdict,
    };
    let mark = mark();
    let cases = match program::cases(&extracted.settings, &extracted.language, &mark) {
        Ok(cases) => cases,
        Err(error) => return GradingResult::broken(error),
    };
    if let Some(verdict) = extracted.refused(context) {
        return verdict;
    }
    match run_cases(context.sandboxes, &extracted, &cases).await {
        Ok(results) => outcomes(context, extracted.metadata(&[]), "case", &results),
        Err(error) => GradingResult::broken(error),
    }
}

/// Grader of `code-tests`.
pub(super) async fn tests(context: &GradingContext<'_>) -> GradingResult {
    let extracted = match ExtractedCode::read(context) {
        Ok(extracted) => extracted,
        Err(verdict) => return *verdict,
    };
    let text = match tests_text(context, extracted.settings.tests.as_deref()).await {
        Ok(text) => text,
        Err(error) => return GradingResult::broken(error),
    };
    if let Some(verdict) = extracted.refused(context) {
        return verdict;
    }
    let settings = &extracted.settings;
    let run = async {
        let Prepared { taken, .. } =
            prepare::prepared(context.sandboxes, settings, &extracted.language).await?;
        let (command, mark) = (settings.command.as_deref(), mark());
        let run = test_file::run(
            &taken.sandbox,
            &extracted.language,
            &extracted.code,
            &text,
            command,
            &mark,
            settings.limits(),
        );
        let ran = run.await;
        taken.end().await;
        ran
    };
    match run.await {
        Ok((execution, tested)) => {
            let mut results: Vec<CaseResult> = tested
                .into_iter()
                .map(|outcome| CaseResult { name: outcome.name, failure: outcome.error, execution: None })
                .collect();
            if let Some(last) = results.last_mut() {
                last.execution = Some(execution);
            }
            outcomes(context, extracted.metadata(&[]), "test", &results)
        }
        Err(error) => GradingResult::broken(error),
    }
}

/// The text of the test file.
async fn tests_text(context: &GradingContext<'_>, tests: Option<&str>) -> Result<String> {
    let tests = tests.ok_or(CodeError::NoTests)?;
    let Some(path) = tests.strip_prefix("file://") else { return Ok(tests.to_owned()) };
    let path = context.workers.base().join(path);
    tokio::fs::read_to_string(&path).await.map_err(|error| CodeError::ReadTests { path, error })
}

/// The outcome of one case.
pub(super) struct CaseResult {
    pub(super) name: String,
    pub(super) failure: Option<String>,
    pub(super) execution: Option<Execution>,
}

impl CaseResult {
    /// The limit that it failed at, if it did. A test of a file has no execution of its own, but the name of its error.
    fn limit(&self) -> Option<&'static str> {
        let failure = self.failure.as_ref()?;
        let limit = self.execution.as_ref().and_then(Execution::limit);
        limit.or_else(|| memory::is_failure(failure).then_some("memory"))
    }
}

/// Runs all cases in one sandbox, as long as it lasts; one that a case has broken is replaced for the next.
async fn run_cases(
    sandboxes: &Sandboxes,
    extracted: &ExtractedCode,
    cases: &[Case],
) -> Result<Vec<CaseResult>> {
    let (limits, mark) = (extracted.settings.limits(), mark());
    let mut results = Vec::with_capacity(cases.len());
    let mut prepared: Option<Prepared> = None;
    for case in cases {
        let (place, loaded) = match prepared.take() {
            Some(ready) => (ready, None),
            None => {
                let fresh = prepare::prepared(sandboxes, &extracted.settings, &extracted.language).await?;
                let loaded =
                    run::code(&fresh.taken.sandbox, &extracted.language, &extracted.code, limits).await;
                (fresh, Some(loaded))
            }
        };
        // Code that does not even load fails every case in the same way, so it is not tried again for each.
        if let Some(loaded) = &loaded
            && loaded.failure().is_some()
            && !case.code.is_empty()
        {
            place.taken.end().await;
            return Ok(cases.iter().map(|case| not_loaded(case, loaded)).collect());
        }
        let execution = match loaded {
            // The code itself is the case.
            Some(mut loaded) if case.code.is_empty() => {
                place.measure(&mut loaded, &extracted.language, limits).await;
                loaded
            }
            _ => place.run(&extracted.language, &case.code, limits, &mark).await,
        };
        if execution.leaves_sandbox_usable() {
            prepared = Some(place);
        } else {
            place.taken.end().await;
        }
        let failure = case.mismatch(&execution);
        results.push(CaseResult { name: case.name.clone(), failure, execution: Some(execution) });
    }
    if let Some(place) = prepared {
        place.taken.end().await;
    }
    Ok(results)
}

fn not_loaded(case: &Case, loaded: &Execution) -> CaseResult {
    let raised = loaded.error.as_ref().map(|error| error.name.as_str()).unwrap_or_default();
    let failure = (!case.wants_error(raised)).then(|| loaded.failure().unwrap_or_default());
    CaseResult { name: case.name.clone(), failure, execution: Some(loaded.clone()) }
}

/// The verdict over cases: the share of those that hold is the score. They are listed in `code`, which describes the answer.
pub(super) fn outcomes(
    context: &GradingContext<'_>,
    mut code: Object,
    noun: &str,
    results: &[CaseResult],
) -> GradingResult {
    let total = results.len();
    let failures: Vec<String> = results
        .iter()
        .filter_map(|result| result.failure.as_ref().map(|failure| format!("{}: {failure}", result.name)))
        .collect();
    let reason = match (failures.first(), total) {
        (None, 1) => "the code does what is expected".to_owned(),
        (None, _) => format!("all {total} {noun}s hold"),
        (Some(_), 1) => results.iter().find_map(|result| result.failure.clone()).unwrap_or_default(),
        (Some(_), _) => {
            let more =
                if failures.len() > 3 { format!("; and {} more", failures.len() - 3) } else { String::new() };
            let shown: Vec<&str> = failures.iter().take(3).map(String::as_str).collect();
            let verb = if failures.len() == 1 { "does" } else { "do" };
            format!("{} of {total} {noun}s {verb} not hold: {}{more}", failures.len(), shown.join("; "))
        }
    };
    let score = if total == 0 { 0.0 } else { (total - failures.len()) as f64 / total as f64 };
    let executions: Vec<Value> = results
        .iter()
        .map(|result| {
            let mut value = result.execution.as_ref().map_or_else(|| json!({}), Execution::to_json);
            value["name"] = json!(result.name);
            value["pass"] = json!(result.failure.is_none());
            if let Some(failure) = &result.failure {
                value["reason"] = json!(failure);
            }
            value
        })
        .collect();
    // Code that was stopped is not known to be wrong.
    let limit = results.iter().find_map(CaseResult::limit);
    let word = match (failures.is_empty(), limit) {
        (true, _) => "passed".to_owned(),
        (false, Some(limit)) => format!("{limit} limit"),
        (false, None) => "wrong".to_owned(),
    };
    code.insert("verdict".to_owned(), json!(word));
    code.insert(format!("{noun}s"), Value::Array(executions));
    let enough = context.assertion.threshold.map_or(failures.is_empty(), |threshold| score >= threshold);
    verdict(context, score, enough, reason, code)
}

/// A verdict as the assertion counts it: `not-` turns it round.
pub(super) fn verdict(
    context: &GradingContext<'_>,
    score: f64,
    holds: bool,
    reason: String,
    code: Object,
) -> GradingResult {
    let negated = context.assertion.negated;
    metrics::keep(context, holds != negated, &reason, &code);
    let mut metadata = Object::new();
    metadata.insert("code".to_owned(), Value::Object(code));
    GradingResult {
        pass: holds != negated,
        score: if negated { 1.0 - score } else { score },
        reason,
        metadata: Some(metadata),
        ..GradingResult::default()
    }
}

fn failed(context: &GradingContext<'_>, kind: &str, reason: String) -> GradingResult {
    let mut code = Object::new();
    code.insert("problem".to_owned(), json!(kind));
    verdict(context, 0.0, false, reason, code)
}

fn listed(findings: &[Finding]) -> String {
    let shown: Vec<String> =
        findings.iter().take(5).map(|finding| format!("line {} {}", finding.line, finding.what)).collect();
    shown.join(", ")
}

/// A word that code cannot know beforehand.
fn mark() -> String {
    format!("scv-{}:", uuid::Uuid::new_v4().simple())
}
