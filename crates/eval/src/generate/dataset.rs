//! Variables for tests, as different users would write them.

use serde_json::{Value, json};

use super::{GenerateError, Model, Progress, more, shown_prompts};
use crate::config::Suite;
use crate::model::Object;
use crate::template::value::to_text;
use crate::template::{inputs, is_template};

/// Options of generated tests.
#[derive(Debug, Clone, Default)]
pub struct DatasetOptions {
    /// The model; that of the suite or of the environment if there is none.
    pub provider: Option<String>,
    /// Further instructions of the user.
    pub instructions: Option<String>,
    /// The number of personas.
    pub personas: usize,
    /// The number of tests for each of them.
    pub per_persona: usize,
    /// Whether answers are cached.
    pub cache: bool,
}

/// Rounds in which nothing new came, after which no more is asked for.
const MAX_IDLE: usize = 2;
/// Tests of the suite that the model is shown.
const MAX_SHOWN: usize = 50;

/// Generates values for the variables of the prompts, one map for each test.
///
/// # Errors
/// When there are no variables, no model, or no answer that can be read.
pub async fn dataset(
    suite: &Suite,
    options: &DatasetOptions,
    progress: Progress<'_>,
) -> Result<Vec<Object>, GenerateError> {
    let variables = variables(suite);
    if variables.is_empty() {
        return Err(GenerateError::NoVariables);
    }
    let model = Model::new(suite, options.provider.as_deref(), options.cache)?;
    let prompts = shown_prompts(suite);
    let asked = personas_prompt(&prompts, options.personas, options.instructions.as_deref());
    let personas: Vec<String> = model.ask_list(&asked, "personas", 0).await?.iter().map(described).collect();
    let personas = &personas[..personas.len().min(options.personas.max(1))];
    progress(format!("{} personas", personas.len()));
    let mut known: Vec<Value> = existing(suite);
    let old = known.len();
    let wanted = options.personas * options.per_persona;
    let (mut round, mut idle) = (0, 0);
    while known.len() - old < wanted && idle <= MAX_IDLE {
        let persona = &personas[round % personas.len()];
        let number = options.per_persona.min(wanted - (known.len() - old));
        let asked = tests_prompt(&prompts, persona, &variables, &known, number, options);
        let sets = model.ask_list(&asked, "vars", round).await?;
        let before = known.len();
        for set in sets.iter().filter_map(|set| complete(set, &variables)) {
            if known.len() - old < wanted && !known.contains(&set) {
                known.push(set);
            }
        }
        idle = if known.len() == before { idle + 1 } else { 0 };
        round += 1;
        progress(format!("{} of {wanted} tests", known.len() - old));
    }
    Ok(known.split_off(old).into_iter().filter_map(|set| set.as_object().cloned()).collect())
}

/// Returns tests as a table that a suite can read: a column for each variable, a line for each test.
pub fn table(sets: &[Object]) -> String {
    let Some(first) = sets.first() else { return String::new() };
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(first.keys());
    for set in sets {
        let _ = writer.write_record(first.keys().map(|name| set.get(name).map(to_text).unwrap_or_default()));
    }
    String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
}

/// The variables of all prompts, in the order of the prompts.
fn variables(suite: &Suite) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for prompt in suite.prompts.iter().filter(|prompt| is_template(&prompt.raw)) {
        for name in inputs(&prompt.raw).unwrap_or_default() {
            // Made by the run itself.
            if !name.starts_with('_') && !all.contains(&name) {
                all.push(name);
            }
        }
    }
    all
}

/// Variables of the suite's tests, so that they are not proposed again.
fn existing(suite: &Suite) -> Vec<Value> {
    suite.tests.iter().filter_map(|test| test.get("vars")).filter(|vars| vars.is_object()).cloned().collect()
}

/// A persona: a text, or an object that describes one.
fn described(persona: &Value) -> String {
    match persona {
        Value::Object(map) => map.values().map(to_text).collect::<Vec<_>>().join(": "),
        other => to_text(other),
    }
}

/// The variables of a proposed test, if it has all of them.
fn complete(set: &Value, variables: &[String]) -> Option<Value> {
    let value = |name: &String| Some((name.clone(), set.get(name).filter(|value| !value.is_null())?.clone()));
    variables.iter().map(value).collect::<Option<Object>>().map(Value::Object)
}

fn personas_prompt(prompts: &str, number: usize, instructions: Option<&str>) -> String {
    format!(
        "An application sends these prompts to a language model, with the variables in braces filled in by its users.\n\n{prompts}\n\n\
        Who uses it? Describe {number} users who differ in what they know, what they want and how they write, among them some that \
        the author may not have thought of. One or two sentences each.{}\n\n\
        Answer with one JSON object and nothing else: {{\"personas\": [text, ...]}}",
        more(instructions)
    )
}

fn tests_prompt(
    prompts: &str,
    persona: &str,
    variables: &[String],
    known: &[Value],
    number: usize,
    options: &DatasetOptions,
) -> String {
    let shape: Vec<String> = variables.iter().map(|name| format!("{}: value", json!(name))).collect();
    // The newest are the most likely to be proposed again.
    let shown: Vec<String> =
        known.iter().rev().take(MAX_SHOWN).rev().map(|set| format!("<test>{set}</test>")).collect();
    let shown = match shown.is_empty() {
        true => String::new(),
        false => format!("These tests exist already; propose others.\n{}\n\n", shown.join("\n")),
    };
    format!(
        "An application sends these prompts to a language model, with the variables in braces filled in by its users.\n\n{prompts}\n\n\
        One of its users:\n<user>\n{persona}\n</user>\n\n{shown}\
        Write {number} sets of values for the variables, as this user would. They are for tests: choose what is likely to go wrong, \
        such as unusual, long, empty or misleading input.{}\n\n\
        Answer with one JSON object and nothing else: {{\"vars\": [{{{}}}, ...]}}",
        more(options.instructions.as_deref()),
        shape.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_sets_are_left_out_and_others_reduced() {
        let variables = ["a".to_owned(), "b".to_owned()];
        assert_eq!(complete(&json!({"b": 1, "a": "x", "c": 2}), &variables), Some(json!({"a": "x", "b": 1})));
        assert_eq!(complete(&json!({"a": "x"}), &variables), None);
        assert_eq!(complete(&json!({"a": "x", "b": null}), &variables), None);
        assert_eq!(complete(&json!("text"), &variables), None);
    }

    #[test]
    fn variables_are_those_from_outside() {
        let names = |text: &str| inputs(text).unwrap();
        assert_eq!(names("{% for x in list %}{{ x.name }}{{ loop.index }}{% endfor %} {{env.K}}"), ["list"]);
        assert_eq!(
            names("{% set y = a %}{{ y }}{% macro m(p) %}{{ p }}{% endmacro %}{{ m(b | upper) }}"),
            ["a", "b"]
        );
    }
}
