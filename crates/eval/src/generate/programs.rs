//! Strategies of red teams that are programs of the user's: `action` is handed the attacks as they are, and returns others.

use sandcove_redteam::attack::{literal, plain};
use sandcove_redteam::generate::Skipped;
use sandcove_redteam::section::Named;
use serde_json::{Value, json};

use super::Progress;
use crate::config::attacks::Attacks;
use crate::script::{ScriptError, Workers};

/// Reason why a program added no tests.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error("there is no attack on a model that it is for")]
    NoAttack,
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("`action` must return a list of tests, not {0}")]
    NotAList(Value),
    #[error("`action` returned a test without a text in `vars.{inject_var}`: {test}")]
    NoText { inject_var: String, test: Value },
}

/// Calls the programs of a suite, and adds the tests that they return. One that fails is skipped, with its error.
pub(super) async fn call(attacks: &mut Attacks, inject_var: &str, workers: &Workers, progress: Progress<'_>) {
    for program in std::mem::take(&mut attacks.programs) {
        let tests = attacks.document["tests"].as_array().into_iter().flatten();
        let given: Vec<Value> = tests
            .filter(|test| is_for(test, &program))
            .map(|test| with_text(test, inject_var, plain))
            .collect();
        let made = match given.is_empty() {
            true => Err(ProgramError::NoAttack),
            false => returned(&program, given, inject_var, workers).await,
        };
        match made {
            Ok(tests) => {
                progress(format!("{}: {} attacks", program.id, tests.len()));
                attacks.add(tests, Vec::new());
            }
            Err(error) => {
                let what = format!("strategy {}", program.id);
                attacks.add(Vec::new(), vec![Skipped { what, why: error.to_string() }]);
            }
        }
    }
}

/// Whether a test is an attack on a model as it is, of a plugin that the program is for.
fn is_for(test: &Value, program: &Named) -> bool {
    let said = |key: &str| test["metadata"][key].as_str().unwrap_or_default();
    said("layer") == "model" && said("strategyId") == "basic" && program.is_for(said("pluginId"))
}

/// A test with its attack changed.
fn with_text(test: &Value, inject_var: &str, change: fn(&str) -> String) -> Value {
    let mut test = test.clone();
    if let Some(text) = test["vars"].get(inject_var).and_then(Value::as_str).map(change) {
        test["vars"][inject_var] = json!(text);
    }
    test
}

/// The tests that a program returns for those that it is given.
async fn returned(
    program: &Named,
    given: Vec<Value>,
    inject_var: &str,
    workers: &Workers,
) -> Result<Vec<Value>, ProgramError> {
    let reference = format!("{}:action", program.id);
    let arguments = vec![Value::Array(given), json!(inject_var), json!(program.config)];
    let made = match workers.invoke(&reference, &["action"], arguments).await? {
        Value::Array(made) => made,
        other => return Err(ProgramError::NotAList(other)),
    };
    let mut tests = Vec::with_capacity(made.len());
    for test in made {
        if !test["vars"].get(inject_var).is_some_and(Value::is_string) {
            return Err(ProgramError::NoText { inject_var: inject_var.to_owned(), test });
        }
        let mut test = with_text(&test, inject_var, literal);
        // One that the program has not named is its own.
        if test["metadata"]["strategyId"].as_str().is_none_or(|id| id == "basic") {
            test["metadata"]["strategyId"] = json!(program.id);
        }
        let (probe, strategy) = (test["metadata"]["probe"].clone(), test["metadata"]["strategyId"].clone());
        if let (Some(probe), Some(strategy)) = (probe.as_str(), strategy.as_str()) {
            test["description"] = json!(format!("{probe} [model, {strategy}]"));
        }
        tests.push(test);
    }
    Ok(tests)
}
