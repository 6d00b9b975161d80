//! User code in worker processes, with the real interpreters; what is not installed is skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use sandcove_eval::model::Object;
use sandcove_eval::reading::Env;
use sandcove_eval::script::{EntryPoint, Language, ScriptCall, ScriptError, ScriptReply, Workers};
use serde_json::{Value, json};

type Result = std::result::Result<ScriptReply, ScriptError>;

struct Scripts {
    language: Language,
    directory: tempfile::TempDir,
    workers: Workers,
}

impl Scripts {
    /// None, with a word about it, when the language's interpreter is not there.
    fn new(language: Language) -> Option<Self> {
        let program = match language {
            Language::Python => "python3",
            Language::JavaScript => "node",
            Language::Ruby => "ruby",
        };
        if std::process::Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: {program} is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut env = Object::new();
        env.insert("FROM_CONFIG".to_owned(), json!("yes"));
        let workers = Workers::new(directory.path().to_owned(), Env::new(env), 2);
        Some(Self { language, directory, workers })
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }

    /// Writes a file that was last changed at a certain time.
    fn dated_file(&self, name: &str, text: &str) {
        self.file(name, text);
        let file = std::fs::File::options().append(true).open(self.directory.path().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    }

    async fn call(&self, entry: EntryPoint, arguments: Value) -> Result {
        self.call_within(entry, arguments, Duration::from_secs(60)).await
    }

    async fn call_within(&self, entry: EntryPoint, arguments: Value, time_limit: Duration) -> Result {
        let Value::Array(arguments) = arguments else { panic!("arguments are a list") };
        let call = ScriptCall {
            language: self.language,
            entry,
            arguments,
            time_limit,
            interpreter: None,
            isolated: false,
        };
        self.workers.call(call).await
    }

    fn function(&self, file: &str, name: Option<&str>) -> EntryPoint {
        EntryPoint::Function {
            path: self.directory.path().join(file),
            name: name.map(str::to_owned),
            default: &["get_assert", "fallback"],
        }
    }

    fn provider(&self, file: &str, default: &'static str) -> EntryPoint {
        let options = json!({"config": {"mark": "!"}});
        EntryPoint::Provider {
            path: self.directory.path().join(file),
            name: None,
            default,
            options,
            set: json!({}),
        }
    }
}

fn inline(code: &str) -> EntryPoint {
    EntryPoint::Inline { code: code.to_owned(), parameters: &["output", "context"] }
}

fn message(result: Result) -> String {
    result.expect_err("this call fails").to_string()
}

#[tokio::test]
async fn python_functions_are_called_and_what_they_print_is_kept_apart() {
    let Some(scripts) = Scripts::new(Language::Python) else { return };
    scripts.file("helper.py", "WORD = 'helped'\n");
    scripts.file(
        "check.py",
        r#"
import asyncio, os, sys, helper
calls = 0
def get_assert(output, context):
    global calls
    calls += 1
    print('{"value": "not the answer"}')
    os.system('echo from below')
    print('to the side', file=sys.stderr)
    return {'output': output, 'calls': calls, 'word': helper.WORD, 'env': os.environ['FROM_CONFIG'], 'got': context}
async def later(output, context):
    await asyncio.sleep(0)
    return output * 2
class Checks:
    @staticmethod
    def short(output, context): return len(output) < 4
    def method(self, output, context): return type(self).__name__
def wrong(output, context): raise ValueError('no such luck')
def leaves(output, context): sys.exit(3)
def strange(output, context): return object()
"#,
    );
    let reply = scripts.call(scripts.function("check.py", None), json!(["a", {"n": 1}])).await.unwrap();
    let expected = json!({"output": "a", "calls": 1, "word": "helped", "env": "yes", "got": {"n": 1}});
    assert_eq!(reply.value, expected);
    assert_eq!(reply.stderr, "to the side\n");
    assert!(
        reply.stdout.contains("not the answer") && reply.stdout.contains("from below"),
        "{}",
        reply.stdout
    );
    let again = scripts.call(scripts.function("check.py", None), json!(["a", {}])).await.unwrap();
    assert_eq!(again.value["calls"], 2, "the module stays loaded");
    for (name, value) in
        [("later", json!("xx")), ("Checks.short", json!(true)), ("Checks.method", json!("Checks"))]
    {
        let reply = scripts.call(scripts.function("check.py", Some(name)), json!(["x", {}])).await.unwrap();
        assert_eq!(reply.value, value, "{name}");
    }
    for (name, text) in [
        ("wrong", "ValueError: no such luck"),
        ("leaves", "SystemExit: 3"),
        ("strange", "cannot be returned"),
        ("missing", "has no function `missing`"),
    ] {
        let said = message(scripts.call(scripts.function("check.py", Some(name)), json!(["x", {}])).await);
        assert!(said.contains(text), "{name}: {said}");
    }
    assert_eq!(scripts.call(inline("len(output) == 3"), json!(["abc", {}])).await.unwrap().value, true);
    let lines = "found = json.loads(output)\nreturn found['a'] + context['b']\n";
    assert_eq!(scripts.call(inline(lines), json!(["{\"a\": 1}", {"b": 2}])).await.unwrap().value, 3);
}

#[tokio::test]
async fn a_file_is_loaded_again_after_a_change() {
    for language in [Language::Python, Language::JavaScript, Language::Ruby] {
        let Some(scripts) = Scripts::new(language) else { continue };
        // Of the same size and time: only the text tells them apart.
        for version in [1, 2] {
            let (name, text) = match language {
                Language::Python => {
                    ("check.py", format!("def get_assert(output, context): return {version}\n"))
                }
                Language::JavaScript => ("check.js", format!("module.exports = () => {version}\n")),
                Language::Ruby => {
                    ("check.rb", format!("def get_assert(output, context)\n  {version}\nend\n"))
                }
            };
            scripts.dated_file(name, &text);
            let reply = scripts.call(scripts.function(name, None), json!(["", {}])).await.unwrap();
            assert_eq!(reply.value, version, "{name}");
        }
    }
}

#[tokio::test]
async fn python_compiles_what_scripts_import_from_its_text() {
    let Some(mut scripts) = Scripts::new(Language::Python) else { return };
    std::fs::create_dir(scripts.directory.path().join("package")).unwrap();
    scripts.file(
        "check.py",
        "import beside, package.inside\ndef get_assert(output, context): return [beside.N, package.inside.N]\n",
    );
    for version in [1, 2] {
        scripts.dated_file("beside.py", &format!("N = {version}\n"));
        scripts.dated_file("package/inside.py", &format!("N = {version}\n"));
        // A run of its own, as after a change that is watched for; with a cache, also where the environment of the tests has none.
        let env = json!({"PYTHONDONTWRITEBYTECODE": ""}).as_object().unwrap().clone();
        scripts.workers = Workers::new(scripts.directory.path().to_owned(), Env::new(env), 1);
        let reply = scripts.call(scripts.function("check.py", None), json!(["", {}])).await.unwrap();
        assert_eq!(reply.value, json!([version, version]));
    }
}

#[tokio::test]
async fn a_worker_that_dies_or_hangs_is_replaced() {
    let Some(scripts) = Scripts::new(Language::Python) else { return };
    scripts.file(
        "check.py",
        "import os, sys, time\n\
         def get_assert(output, context): return os.getpid()\n\
         def dies(output, context): print('last words', file=sys.stderr, flush=True); os._exit(7)\n\
         def hangs(output, context): time.sleep(1000)\n\
         def floods(output, context): print('x' * 3_000_000); return True\n",
    );
    let pid = scripts.call(scripts.function("check.py", None), json!(["", {}])).await.unwrap().value;
    let said = message(scripts.call(scripts.function("check.py", Some("dies")), json!(["", {}])).await);
    assert!(
        said.contains("ended during the call") && said.contains('7') && said.contains("last words"),
        "{said}"
    );
    let next = scripts.call(scripts.function("check.py", None), json!(["", {}])).await.unwrap().value;
    assert_ne!(pid, next);
    let hangs = scripts.function("check.py", Some("hangs"));
    let late = scripts.call_within(hangs, json!(["", {}]), Duration::from_millis(300)).await;
    assert!(matches!(late, Err(ScriptError::TimedOut(_))));
    let flood = scripts.call(scripts.function("check.py", Some("floods")), json!(["", {}])).await.unwrap();
    assert_eq!((flood.value, flood.stdout.len()), (json!(true), 64 * 1024));
}

#[tokio::test]
async fn javascript_of_every_module_kind_is_called() {
    let Some(scripts) = Scripts::new(Language::JavaScript) else { return };
    scripts.file(
        "a.cjs",
        "module.exports = async (output, context) => { console.log('{\"value\": 0}'); return output + context.n }\n\
         module.exports.other = () => 2\n",
    );
    scripts.file(
        "b.mjs",
        "export default (output) => output.length\nexport const named = () => [process.env.FROM_CONFIG]\n",
    );
    scripts.file("c.mjs", "export default function (output, { provider }) { return provider.id() }\n");
    scripts.file("d.js", "module.exports = { fallback: () => 'fell back' }\n");
    scripts.file("e.js", "throw new Error('does not load')\n");
    scripts.file("f.js", "function hook(name) { return `at ${name}` }\nmodule.exports = hook\n");
    for (file, name, arguments, value) in [
        ("a.cjs", None, json!(["x", {"n": 1}]), json!("x1")),
        ("a.cjs", Some("other"), json!([]), json!(2)),
        ("b.mjs", None, json!(["abc"]), json!(3)),
        ("b.mjs", Some("named"), json!([]), json!(["yes"])),
        ("c.mjs", None, json!(["", {"provider": {"id": "echo"}}]), json!("echo")),
        ("d.js", None, json!([]), json!("fell back")),
    ] {
        let reply = scripts.call(scripts.function(file, name), arguments).await.unwrap();
        assert_eq!(reply.value, value, "{file}");
    }
    // A module that is one function answers to any name, but is not another assertion than the one that was named.
    let path = scripts.directory.path().join("f.js");
    let hook = |default| EntryPoint::Function { path: path.clone(), name: Some("hook".to_owned()), default };
    assert_eq!(scripts.call(hook(&[]), json!(["start"])).await.unwrap().value, "at start");
    assert!(message(scripts.call(hook(&["get_assert"]), json!(["start"])).await).contains("`hook`"));
    let said = message(scripts.call(scripts.function("e.js", None), json!([])).await);
    assert!(said.contains("does not load"), "{said}");
    let said = message(scripts.call(scripts.function("d.js", Some("none")), json!([])).await);
    assert!(said.contains("does not export a function `none`"), "{said}");
    assert_eq!(scripts.call(inline("output.length > 2"), json!(["abc", {}])).await.unwrap().value, true);
    let lines = "const path = require('node:path')\nreturn path.basename(output)";
    assert_eq!(scripts.call(inline(lines), json!(["/a/b", {}])).await.unwrap().value, "b");
}

#[tokio::test]
async fn providers_are_classes_objects_or_functions() {
    let Some(scripts) = Scripts::new(Language::JavaScript) else { return };
    scripts.file(
        "class.cjs",
        "module.exports = class {\n\
           constructor(options) { this.options = options; this.calls = 0 }\n\
           callApi(prompt, { vars }) { return { output: [prompt, vars.x, this.options.config.mark, ++this.calls] } }\n\
         }\n",
    );
    scripts.file("object.mjs", "export default { callApi: async (prompt) => ({ output: prompt }) }\n");
    scripts.file(
        "function.js",
        "async function callApi({ prompt, vars, options }) { return { output: vars.x + options.config.mark } }\n\
         module.exports = callApi\n",
    );
    scripts.file("plain.mjs", "export const callApi = (prompt, context) => ({ output: context.vars.x })\n");
    let destructuring =
        "export async function callApi({ prompt, vars }) { return { output: prompt + vars.x } }\n";
    scripts.file("namespace.mjs", destructuring);
    for (file, value) in [
        ("class.cjs", json!(["p", "v", "!", 1])),
        ("class.cjs", json!(["p", "v", "!", 2])),
        ("object.mjs", json!("p")),
        ("function.js", json!("v!")),
        ("plain.mjs", json!("v")),
        ("namespace.mjs", json!("pv")),
    ] {
        let provider = scripts.provider(file, "callApi");
        let reply = scripts.call(provider, json!(["p", {"vars": {"x": "v"}}, {}])).await.unwrap();
        assert_eq!(reply.value["output"], value, "{file}");
    }
    let Some(scripts) = Scripts::new(Language::Python) else { return };
    scripts.file(
        "provider.py",
        "def call_api(prompt, options, context): return {'output': [prompt, options['config'], context['vars']]}\n",
    );
    let provider = scripts.provider("provider.py", "call_api");
    let reply = scripts.call(provider, json!(["p", {"vars": 1}, {"config": 2}])).await.unwrap();
    assert_eq!(reply.value["output"], json!(["p", 2, 1]));
}
