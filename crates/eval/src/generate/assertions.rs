//! Assertions for all tests: questions that an answer should satisfy, as code where code can decide them.

use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::{GenerateError, Model, Progress, more, shown_prompts};
use crate::config::Suite;
use crate::model::Object;
use crate::template::is_template;
use crate::template::value::to_text;

/// Options of generated assertions.
#[derive(Debug, Clone, Default)]
pub struct AssertionOptions {
    /// The model; that of the suite or of the environment if there is none.
    pub provider: Option<String>,
    /// Further instructions of the user.
    pub instructions: Option<String>,
    /// The number of assertions.
    pub number: usize,
    /// The type of those that code cannot decide: `pi`, `g-eval` or `llm-rubric`. By default `pi` if there is a key for it, else
    /// `llm-rubric`.
    pub kind: Option<String>,
    /// Whether answers are cached.
    pub cache: bool,
}

/// Generates assertions: maps with `type`, `metric` and `value`.
///
/// # Errors
/// When there is no model, or no answer that can be read.
pub async fn assertions(
    suite: &Suite,
    options: &AssertionOptions,
    progress: Progress<'_>,
) -> Result<Vec<Value>, GenerateError> {
    let model = Model::new(suite, options.provider.as_deref(), options.cache)?;
    let has_pi = suite.workers.env().get("WITHPI_API_KEY").is_some_and(|key| !key.is_empty());
    let kind = options.kind.as_deref().unwrap_or(if has_pi { "pi" } else { "llm-rubric" });
    let prompts = shown_prompts(suite);
    let asked = questions_prompt(&prompts, &existing(suite), options);
    let questions = model.ask_list(&asked, "questions", 0).await?;
    let questions: Vec<(Option<String>, String)> =
        questions.iter().filter_map(question).take(options.number).collect();
    progress(format!("{} questions", questions.len()));
    let each = questions.iter().map(|(label, question)| {
        let (model, prompts) = (&model, &prompts);
        async move {
            let said = model.ask(&code_prompt(prompts, question), "code", 0).await?;
            progress(format!("decided: {question}"));
            let mut assertion = Object::new();
            let code = code_in(&to_text(&said));
            let (kind, value) = code.as_deref().map_or((kind, question.as_str()), |code| ("python", code));
            assertion.insert("type".to_owned(), json!(kind));
            if let Some(label) = label {
                assertion.insert("metric".to_owned(), json!(label));
            }
            assertion.insert("value".to_owned(), json!(value));
            Ok(Value::Object(assertion))
        }
    });
    try_join_all(each).await
}

/// A question and its name: an object with `question` and `label`, or a text.
fn question(value: &Value) -> Option<(Option<String>, String)> {
    let text =
        value.get("question").unwrap_or(value).as_str().map(str::trim).filter(|text| !text.is_empty())?;
    let label = value.get("label").and_then(Value::as_str).filter(|label| !label.trim().is_empty());
    Some((label.map(str::to_owned), text.to_owned()))
}

/// Checks that the suite has already, without files and code.
fn existing(suite: &Suite) -> Vec<String> {
    let tests = suite.tests.iter().chain([&suite.default_test]);
    let asserts = tests.filter_map(|test| test.get("assert")?.as_array()).flatten();
    let mut all: Vec<String> = Vec::new();
    for assertion in asserts {
        let shown = format!("{}: {}", to_text(&assertion["type"]), to_text(&assertion["value"]));
        if assertion["value"].is_string() && !all.contains(&shown) {
            all.push(shown);
        }
    }
    all
}

/// The body of a Python function in an answer: nothing if the answer is that there is none, or if it is not Python.
fn code_in(answer: &str) -> Option<String> {
    let text = answer.trim();
    let fenced = text.find("```").map(|start| {
        let inside = &text[start + 3..];
        let inside = inside.split_once('\n').map_or(inside, |(_, rest)| rest);
        inside.split("```").next().unwrap_or(inside)
    });
    let code = fenced.unwrap_or(text).trim_matches('\n').trim_end();
    let mut body = String::from("def check(output, context):\n");
    code.lines().for_each(|line| body.push_str(&format!("    {line}\n")));
    let returns = code.lines().any(|line| line.trim_start().starts_with("return"));
    // A single line is an expression in an assertion; a body has at least one statement before.
    let code = if code.contains('\n') { code.to_owned() } else { format!("# decided by code\n{code}") };
    // A value is a template before it is code.
    let runs = returns && !is_template(&code) && ruff_python_parser::parse_module(&body).is_ok();
    runs.then_some(code)
}

fn questions_prompt(prompts: &str, existing: &[String], options: &AssertionOptions) -> String {
    let existing = match existing.is_empty() {
        true => String::new(),
        false => {
            format!("Its tests check this already; ask for something else.\n- {}\n\n", existing.join("\n- "))
        }
    };
    format!(
        "An application sends these prompts to a language model, with the variables in braces filled in.\n\n{prompts}\n\n{existing}\
        Write {} questions that tell a good answer from a bad one, whatever the variables are. Each is about one property, can be \
        answered with yes or no from the answer alone, and is answered with yes if the answer is good. Begin with what the prompts \
        demand, then what a user would expect without saying so, then the form.{}\n\n\
        Answer with one JSON object and nothing else: {{\"questions\": [{{\"label\": two or three words, \"question\": text}}, ...]}}",
        options.number,
        more(options.instructions.as_deref())
    )
}

fn code_prompt(prompts: &str, question: &str) -> String {
    format!(
        "Answers of a language model to these prompts are checked with a question.\n\n{prompts}\n\n<question>\n{question}\n</question>\n\n\
        Can Python decide it, for every answer, from the text alone? Counting, lengths, formats and fixed texts can be decided so; \
        meaning, tone, facts and anything with many wordings cannot. If it cannot be decided, or you are in doubt, answer with the one \
        word None. Else answer with the body of a function and nothing else: no signature, no fence. The answer is in the variable \
        `output`, a text that may be empty. Import what you need, and return {{'pass': True or False, 'score': 1.0 or 0.0, \
        'reason': text}}, with a pass if the question is answered with yes."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bodies_of_functions_are_code() {
        let body = "n = len(output)\nreturn {'pass': n < 9, 'score': float(n < 9)}";
        assert_eq!(code_in(body).unwrap(), body);
        assert_eq!(code_in(&format!("```python\n{body}\n```")).unwrap(), body);
        assert_eq!(code_in("return len(output) < 9").unwrap(), "# decided by code\nreturn len(output) < 9");
        assert_eq!(code_in("None"), None);
        assert_eq!(code_in("none."), None);
        assert_eq!(code_in("I cannot\nreturn such a thing"), None);
        assert_eq!(code_in("n = 1\nn + 1"), None);
        assert_eq!(code_in("n = f'{{{output}}}'\nreturn len(n) > 2"), None);
    }

    #[test]
    fn questions_have_a_name_or_none() {
        assert_eq!(
            question(&json!({"label": "Short", "question": " Is it? "})),
            Some((Some("Short".to_owned()), "Is it?".to_owned()))
        );
        assert_eq!(question(&json!("Is it?")), Some((None, "Is it?".to_owned())));
        assert_eq!(question(&json!({"label": "Short"})), None);
    }
}
