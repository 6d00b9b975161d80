//! Code of models in real sandboxes, also of models that mean harm. Needs a server, `E2B_API_URL` and `E2B_API_KEY`:
//! `cargo test --test code -- --ignored`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use sandcove_eval::assertion::registry;
use sandcove_eval::calling::answers::Answers;
use sandcove_eval::calling::{Call, Models, Provider};
use sandcove_eval::code::SandboxProvider;
use sandcove_eval::grading::{Grader, GradingContext, RowId};
use sandcove_eval::model::{Assertion, GradingResult, Object, ProviderResponse, TestCase};
use sandcove_eval::provider::Factory;
use sandcove_eval::reading::Env;
use sandcove_eval::sandboxes::Sandboxes;
use sandcove_eval::script::Workers;
use serde_json::{Value, json};

/// The parts of a suite that graders use.
struct Parts {
    workers: Arc<Workers>,
    sandboxes: Arc<Sandboxes>,
    models: Models,
}

fn parts() -> Parts {
    let workers = Arc::new(Workers::new(std::env::temp_dir(), Env::default(), 2));
    let sandboxes = Arc::new(Sandboxes::new(Env::default(), 2));
    let factory = Factory::new(Arc::clone(&workers), Arc::clone(&sandboxes));
    Parts { workers, sandboxes, models: Models::new(Box::new(factory), Answers::default()) }
}

async fn graded(parts: &Parts, kind: &str, value: Value, vars: Value, output: &str) -> GradingResult {
    let (negated, kind) = match kind.strip_prefix("not-") {
        Some(kind) => (true, kind),
        None => (false, kind),
    };
    let assertion = Assertion { kind: kind.to_owned(), negated, ..Assertion::default() };
    let vars = vars.as_object().cloned().unwrap_or_default();
    let output_value = json!(output);
    let (response, provider, test) = (ProviderResponse::text(output), Object::new(), TestCase::default());
    let context = GradingContext {
        assertion: &assertion,
        value: Some(&value).filter(|value| !value.is_null()),
        output: &output_value,
        output_text: output,
        vars: &vars,
        prompt: "",
        response: &response,
        latency_ms: 0.0,
        provider: &provider,
        test: &test,
        row: RowId::default(),
        workers: &parts.workers,
        sandboxes: &parts.sandboxes,
        models: &parts.models,
        fallback: None,
        trace: None,
    };
    match registry::grader(kind).unwrap() {
        Grader::Pure(grade) => grade(&context),
        Grader::Async(grade) => grade(&context).await,
    }
}

fn fenced(language: &str, code: &str) -> String {
    format!("Here you are:\n\n```{language}\n{code}\n```\n")
}

#[tokio::test]
#[ignore = "needs a server"]
async fn the_tutorials_variables_are_enough() {
    let parts = parts();
    let factorial = fenced(
        "python",
        "def factorial(n):\n    if n < 0: raise ValueError('negative')\n    return 1 if n < 2 else n * factorial(n - 1)\n\nprint('an example:', factorial(3))",
    );
    let palindrome = fenced("python", "def is_palindrome(s): return s == s[::-1]");
    for (output, vars, pass, words) in [
        (
            &factorial,
            json!({"function_name": "factorial", "test_input": 5, "expected_output": 120}),
            true,
            "",
        ),
        (
            &factorial,
            json!({"function_name": "factorial", "test_input": 5, "expected_output": "121"}),
            false,
            "got `120`",
        ),
        (
            &factorial,
            json!({"function_name": "factorial", "test_input": -3, "expected_error": "ValueError"}),
            true,
            "",
        ),
        (
            &factorial,
            json!({"function_name": "factorial", "test_input": 3, "expected_error": "ValueError"}),
            false,
            "raised nothing",
        ),
        (
            &palindrome,
            json!({"function_name": "is_palindrome", "test_input": "'racecar'", "expected_output": "True"}),
            true,
            "",
        ),
        (
            &palindrome,
            json!({"function_name": "is_palindrome", "testCode": "print(is_palindrome('ab'))\nprint(is_palindrome('a'))", "expectedOutput": "False\nTrue\n"}),
            true,
            "",
        ),
        (
            &palindrome,
            json!({"function_name": "is_palindrome", "test_cases": [{"input": "aa", "expected": true}, {"input": "ab", "expected": true}]}),
            false,
            "1 of 2 cases does not hold: case 2 (\"ab\"): expected true, got false",
        ),
    ] {
        let result = graded(&parts, "code-run", json!(null), vars.clone(), output).await;
        assert_eq!(result.pass, pass, "{vars}: {}", result.reason);
        assert!(result.reason.contains(words), "{vars}: {}", result.reason);
        assert!(result.row_error.is_none(), "{}", result.reason);
    }
}

#[tokio::test]
#[ignore = "needs a server"]
async fn cases_are_scored_in_python_javascript_and_bash() {
    let parts = parts();
    let cases = json!([{"args": [1, 2], "expected": 3}, {"args": [-1, 1], "expected": 0}, {"args": [2, 2], "expected": 5}]);
    for (language, code) in [
        ("python", "def add(a, b):\n    return a + b"),
        ("javascript", "async function add(a, b) { return a + b }"),
        ("bash", "add() { echo $(( $1 + $2 )); }"),
    ] {
        let value = json!({"function": "add", "cases": cases});
        let result = graded(&parts, "code-run", value, json!({}), &fenced(language, code)).await;
        assert!(!result.pass && (result.score - 2.0 / 3.0).abs() < 1e-9, "{language}: {}", result.reason);
        assert!(result.reason.contains("expected 5, got 4"), "{language}: {}", result.reason);
        let metadata = result.metadata.unwrap();
        assert_eq!(metadata["code"]["cases"].as_array().map(Vec::len), Some(3), "{metadata:?}");
    }
}

#[tokio::test]
#[ignore = "needs a server"]
async fn test_files_are_scored_by_test() {
    let parts = parts();
    let code = fenced("python", "def add(a, b):\n    return a + b");
    let tests = "import unittest\n\
                 def test_two(): assert add(1, 1) == 2\n\
                 async def test_later(): assert add(1, 1) == 2\n\
                 def test_wrong(): assert add(1, 1) == 3\n\
                 class More(unittest.TestCase):\n    def test_more(self): self.assertEqual(add(2, 2), 4)\n";
    let result = graded(&parts, "code-tests", json!({"tests": tests}), json!({}), &code).await;
    assert!(
        (result.score - 0.75).abs() < 1e-9 && result.reason.contains("test_wrong: AssertionError"),
        "{}",
        result.reason
    );
    let leaves = fenced("python", "def add(a, b):\n    import os\n    os._exit(0)");
    let result = graded(&parts, "code-tests", json!({"tests": tests}), json!({}), &leaves).await;
    assert!(!result.pass && result.reason.contains("without telling"), "{}", result.reason);
    let script = fenced("js", "exports.add = (a, b) => a + b");
    let tests = "const { add } = require('./solution.js')\nrequire('node:test')('adds', () => require('node:assert').equal(add(1, 1), 2))";
    let result = graded(&parts, "code-tests", json!({"tests": tests}), json!({}), &script).await;
    assert!(result.pass, "{}", result.reason);
}

#[tokio::test]
#[ignore = "needs a server"]
async fn the_policy_refuses_before_anything_runs() {
    let parts = parts();
    let code = fenced("python", "import os\ndef f(): return os.system('ls')");
    let result = graded(&parts, "code-safety", json!(null), json!({}), &code).await;
    assert!(!result.pass && result.reason == "unsafe: line 2 calls os.system", "{}", result.reason);
    assert!(graded(&parts, "not-code-safety", json!(null), json!({}), &code).await.pass);
    let allowed = json!({"policy": {"allow": ["os.system"]}});
    assert!(graded(&parts, "code-safety", allowed, json!({}), &code).await.pass);
    // No server is asked for.
    let result = graded(&parts, "code-run", json!({"function": "f"}), json!({}), &code).await;
    assert!(!result.pass && result.reason.starts_with("not run, because it is unsafe"), "{}", result.reason);
    let wanted = json!({"function_name": "f", "test_input": "", "expected_output": "SAFE_ERROR_DETECTED"});
    assert!(graded(&parts, "code-run", json!(null), wanted, &code).await.pass);
    let none = graded(&parts, "code-run", json!({"function": "f"}), json!({}), "I would rather not.").await;
    assert!(!none.pass && none.reason.contains("no code was found"), "{}", none.reason);
    let wrong = graded(&parts, "code-run", json!({"functoin": "f"}), json!({}), &code).await;
    assert!(wrong.row_error.unwrap().contains("functoin"));
}

#[tokio::test]
#[ignore = "needs a server"]
async fn harm_ends_in_a_verdict_with_its_reason() {
    let parts = parts();
    for (name, code, words) in [
        (
            "fork bomb",
            "import os\ndef f():\n    while True:\n        os.fork()",
            vec!["BlockingIOError", "OSError", "took longer", "broke its sandbox", "ended its interpreter"],
        ),
        ("endless loop", "def f():\n    while True:\n        pass", vec!["took longer than 4 s"]),
        (
            "deletion",
            "import os\ndef f():\n    return os.system('rm -rf / --no-preserve-root >/dev/null 2>&1')",
            vec!["expected", "took longer", "ended its interpreter", "broke its sandbox"],
        ),
        ("2 GB at once", "def f():\n    print('x' * 2_000_000_000)", vec!["MemoryError", "printed more"]),
        (
            "2 GB in pieces",
            "def f():\n    for _ in range(2000):\n        print('x' * 1_000_000)",
            vec!["printed more than 1024 KiB"],
        ),
        ("memory", "def f():\n    return len(bytearray(4_000_000_000))", vec!["MemoryError"]),
        (
            "network",
            "import urllib.request\ndef f():\n    return urllib.request.urlopen('http://1.1.1.1', timeout=2).status",
            vec!["URLError", "TimeoutError", "took longer"],
        ),
        ("exit", "import os\ndef f():\n    os._exit(0)", vec!["ended its interpreter"]),
        (
            "ignored signals",
            "import signal\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\ndef f():\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
            vec!["took longer"],
        ),
        (
            "a lie",
            "import sys\ndef f():\n    print('scv-0:42')\n    sys.exit(0)",
            vec!["SystemExit", "without giving a value"],
        ),
    ] {
        // Short only for what may take for ever; on a busy machine the others take a while to fail as they should.
        let endless = words.iter().any(|word| word.starts_with("took longer"));
        let timeout = if endless { 4000 } else { 60_000 };
        let value = json!({
            "function": "f", "cases": [{"args": [], "expected": 42}], "safety": false, "timeout_ms": timeout,
        });
        let result = graded(&parts, "code-run", value, json!({}), &fenced("python", code)).await;
        eprintln!("{name}: {}", result.reason);
        assert!(!result.pass && result.row_error.is_none(), "{name}: {}", result.reason);
        assert!(words.iter().any(|word| result.reason.contains(word)), "{name}: {}", result.reason);
        // The run goes on.
        let good = fenced("python", "def f():\n    return 42");
        let value = json!({"function": "f", "cases": [{"args": [], "expected": 42}], "timeout_ms": 60_000});
        let result = graded(&parts, "code-run", value, json!({}), &good).await;
        assert!(result.pass, "after {name}: {}", result.reason);
    }
    let bomb = fenced("bash", "f() { :(){ :|:& };: ; sleep 100; }");
    let value = json!({"function": "f", "cases": [{"args": [], "expected": 42}], "timeout_ms": 4000});
    let refused = graded(&parts, "code-run", value.clone(), json!({}), &bomb).await;
    assert!(refused.reason.contains("unsafe: line 1 starts itself again and again"), "{}", refused.reason);
    let mut unchecked = value;
    unchecked["safety"] = json!(false);
    let result = graded(&parts, "code-run", unchecked, json!({}), &bomb).await;
    eprintln!("shell fork bomb: {}", result.reason);
    assert!(!result.pass && result.row_error.is_none(), "{}", result.reason);
}

#[tokio::test]
#[ignore = "needs a server"]
async fn the_provider_runs_its_prompt() {
    let parts = parts();
    for (id, config, prompt, output) in [
        ("sandbox", json!({}), "print(6 * 7)", "42"),
        ("sandbox", json!({}), "```js\nconsole.log([1, 2].map(n => n * 2).join())\n```", "2,4"),
        ("e2b:bash", json!({"basePath": "/"}), "echo $((40 + 2))", "42"),
        (
            "sandbox",
            json!({"timeout_ms": 4500}),
            "while True: pass",
            "took longer than 4.5 s and was stopped",
        ),
        (
            "sandbox:py",
            json!({}),
            "print('so far')\nmissing",
            "so far\nNameError: name 'missing' is not defined",
        ),
    ] {
        let language = SandboxProvider::language_of(id).unwrap().unwrap();
        let provider = SandboxProvider::new(id, language, Arc::clone(&parts.sandboxes));
        let (vars, config) = (Object::new(), config.as_object().cloned().unwrap_or_default());
        let call = Call { prompt, vars: &vars, config: &config, context: &json!({}) };
        let response = provider.call(&call).await;
        assert_eq!(response.output, Some(json!(output)), "{prompt}: {:?}", response.error);
        assert_eq!(response.other["timedOut"], json!(output.starts_with("took")));
    }
    assert!(SandboxProvider::language_of("sandbox:cobol").is_err());
    assert!(SandboxProvider::language_of("sandboxes").unwrap().is_none());
}
