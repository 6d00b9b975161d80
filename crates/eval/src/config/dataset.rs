//! Data sets of programming tasks as tests: HumanEval, EvalPlus, MBPP, and SWE-bench.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::model::Object;
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::node::Node;

/// The prompt for tasks, unless the suite has prompts of its own.
pub const PROMPT: &str = "{{prompt}}\n\n{{instruction}}";

const CODE: &str = "Answer with the complete code, imports included, in one fenced block.";
const DIFF: &str = "Answer with a patch that solves this: a diff in one fenced block, with paths from the root of the repository.";

/// The longest data set, in bytes, also after it is unpacked.
const MAX_SIZE: u64 = 1 << 30;

/// Returns the tasks of a file as tests, each at its line: one JSON object a line, or a list of them; both may be packed with gzip.
pub fn read(path: &str, directory: &Path, findings: &mut Findings) -> Vec<Node> {
    let file = directory.join(path);
    let text = match text_of(&file) {
        Ok(text) => text,
        Err(error) => {
            findings.add(
                Severity::Error,
                None,
                format!("failed to read the data set `{}`: {error}", file.display()),
            );
            return Vec::new();
        }
    };
    let at = |line: usize| Position { file: file.as_path().into(), line, column: 1 };
    let mut tests = Vec::new();
    let mut add = |line: usize, task: Result<Value, TaskError>| match task.and_then(|task| test(&task, &file))
    {
        Ok(test) => tests.push(Node::of(test, at(line))),
        Err(error) => findings.add(Severity::Error, Some(&at(line)), error.to_string()),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Array(tasks)) => tasks.into_iter().for_each(|task| add(1, Ok(task))),
        _ => {
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            for (number, line) in lines {
                add(number + 1, serde_json::from_str(line).map_err(TaskError::NotJson));
            }
        }
    }
    if tests.is_empty() && !findings.failed() {
        findings.add(Severity::Error, Some(&at(1)), "the data set has no tasks");
    }
    tests
}

fn text_of(path: &Path) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    let mut text = String::new();
    let read = match path.extension().is_some_and(|extension| extension == "gz") {
        true => GzDecoder::new(file).take(MAX_SIZE).read_to_string(&mut text),
        false => file.take(MAX_SIZE).read_to_string(&mut text),
    }?;
    match read as u64 == MAX_SIZE {
        true => Err(std::io::Error::other("it is too long")),
        false => Ok(text),
    }
}

/// Reason why a task is no test.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error("this line is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error(
        "not a task of HumanEval (`prompt`, `test`, `entry_point`), MBPP (`text`, `test_list`) or SWE-bench (`problem_statement`, `base_commit`)"
    )]
    UnknownShape,
    #[error(
        "the repository `{name}` is not here; clone it to `{}`, or write its address as `repository`",
        .place.display()
    )]
    NoRepository { name: String, place: PathBuf },
}

/// Returns the test of a task.
fn test(task: &Value, file: &Path) -> Result<Value, TaskError> {
    let text = |key: &str| task.get(key).and_then(Value::as_str);
    if let (Some(prompt), Some(tests), Some(function)) = (text("prompt"), text("test"), text("entry_point")) {
        // Answers may leave out what stands before the function: imports, and functions that it is to use.
        let setup = prompt.rfind(&format!("def {function}(")).map_or("", |at| &prompt[..at]);
        let case = json!({"name": "the tests of the task", "code": format!("{tests}\ncheck({function})")});
        let value = json!({"language": "python", "function": function, "setup": setup, "cases": [case]});
        return Ok(made(task, prompt, CODE, json!({"type": "code-run", "value": value})));
    }
    if let (Some(prompt), Some(list)) =
        (text("text").or_else(|| text("prompt")), texts(task.get("test_list")))
    {
        let imports = texts(task.get("test_imports")).unwrap_or_default();
        let setup =
            imports.iter().map(String::as_str).chain(text("test_setup_code")).collect::<Vec<_>>().join("\n");
        let defined = text("code").into_iter().flat_map(|code| code.split("def ").skip(1));
        let names = defined.filter_map(|rest| rest.split('(').next());
        let function = names.filter(|name| list.iter().any(|test| test.contains(&format!("{name}(")))).last();
        let cases: Vec<Value> = list.iter().map(|test| json!({"name": test, "code": test})).collect();
        let mut value = json!({"language": "python", "setup": setup, "cases": cases});
        if let Some(function) = function {
            value["function"] = json!(function);
        }
        let prompt = format!("{prompt}\n\nThe code must pass these tests:\n\n{}", list.join("\n"));
        return Ok(made(task, &prompt, CODE, json!({"type": "code-run", "value": value})));
    }
    if let (Some(prompt), Some(base)) = (text("problem_statement"), text("base_commit")) {
        let mut value = json!({
            "repository": repository(task, file)?, "revision": base,
            "command": text("test_command").unwrap_or("python3 -m pytest -q {test}"),
        });
        for (key, from) in [("must_pass", "FAIL_TO_PASS"), ("still_pass", "PASS_TO_PASS")] {
            value[key] = json!(texts(task.get(from)).unwrap_or_default());
        }
        for key in ["setup", "test_patch"] {
            if let Some(given) = text(key).filter(|given| !given.is_empty()) {
                value[key] = json!(given);
            }
        }
        return Ok(made(task, prompt, DIFF, json!({"type": "patch", "value": value})));
    }
    Err(TaskError::UnknownShape)
}

/// A list of texts, which data sets also write as the text of a JSON list.
fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    match value? {
        Value::String(text) => serde_json::from_str(text).ok(),
        list => serde_json::from_value(list.clone()).ok(),
    }
}

/// Returns the repository of a task: an address, or a directory beside the data set. Only the names of hosted ones are in SWE-bench.
fn repository(task: &Value, file: &Path) -> Result<String, TaskError> {
    let name = ["repository", "repo"].iter().find_map(|key| task.get(*key)?.as_str()).unwrap_or_default();
    if name.contains("://") {
        return Ok(name.to_owned());
    }
    let beside = file.parent().unwrap_or(Path::new("."));
    let [own, flat] = [beside.join(name), beside.join(name.replace('/', "__"))];
    let found = [&own, &flat].into_iter().find(|place| !name.is_empty() && place.is_dir());
    match found {
        Some(place) => Ok(place.to_string_lossy().into_owned()),
        None => Err(TaskError::NoRepository { name: name.to_owned(), place: flat }),
    }
}

fn made(task: &Value, prompt: &str, instruction: &str, assertion: Value) -> Value {
    let id = ["task_id", "instance_id"].iter().find_map(|key| task.get(*key));
    let id = id.map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
    let mut vars = Object::new();
    vars.extend(id.as_ref().map(|id| ("task_id".to_owned(), json!(id))));
    vars.insert("prompt".to_owned(), json!(prompt));
    vars.insert("instruction".to_owned(), json!(instruction));
    let mut test = json!({"vars": vars, "assert": [assertion]});
    if let Some(id) = id {
        test["description"] = json!(id);
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(task: Value) -> Result<Value, TaskError> {
        test(&task, Path::new("/data/tasks.jsonl"))
    }

    #[test]
    fn tasks_become_assertions_that_run_code() {
        let prompt =
            "import math\n\ndef helper(x):\n    return x\n\ndef area(r):\n    \"\"\"The area.\"\"\"\n";
        let test = of(
            json!({"task_id": "T/1", "prompt": prompt, "entry_point": "area", "test": "def check(f): ..."}),
        )
        .unwrap();
        let value = &test["assert"][0]["value"];
        assert_eq!((&test["description"], &value["function"]), (&json!("T/1"), &json!("area")));
        assert_eq!(value["setup"], "import math\n\ndef helper(x):\n    return x\n\n");
        assert_eq!(value["cases"][0]["code"], "def check(f): ...\ncheck(area)");
        let tests = ["assert add(1, 2) == 3", "assert set(add(0, 0)) == 0"];
        let task = json!({"task_id": 7, "text": "Add.", "code": "def one(): ...\ndef add(a, b): ...", "test_list": tests});
        let test = of(task).unwrap();
        let value = &test["assert"][0]["value"];
        assert_eq!((&test["description"], &value["function"]), (&json!("7"), &json!("add")));
        assert_eq!(value["cases"][1]["code"], tests[1]);
        assert!(test["vars"]["prompt"].as_str().unwrap().contains(tests[0]));
    }

    #[test]
    fn instances_need_a_repository_that_is_here() {
        let mut task = json!({
            "instance_id": "a__b-1", "repo": "a/b", "base_commit": "v1", "problem_statement": "Broken.",
            "FAIL_TO_PASS": "[\"t.py::x\"]", "PASS_TO_PASS": [], "test_patch": "",
        });
        assert!(of(task.clone()).unwrap_err().to_string().contains("/data/a__b"));
        task["repository"] = json!("file:///repos/b");
        let test = of(task).unwrap();
        let value = &test["assert"][0]["value"];
        assert_eq!(
            (&value["repository"], &value["must_pass"]),
            (&json!("file:///repos/b"), &json!(["t.py::x"]))
        );
        assert_eq!(value.get("test_patch"), None);
        assert!(of(json!({"question": "?"})).is_err());
    }
}
