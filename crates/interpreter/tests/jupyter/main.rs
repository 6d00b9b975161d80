//! Jupyter kernels, over real sockets: a small one that misbehaves on request (`kernel.py`; needs `python3`).
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sandcove_interpreter::Config;
use sandcove_interpreter::contexts::{ContextError, Contexts};
use sandcove_wire::interpreter::{CreateContext, Event, ExecutionError, ExecutionRequest, ResultData};
use tempfile::TempDir;
use tokio::sync::mpsc;

const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jupyter/kernel.py");

/// An interpreter with kernels installed in a home of its own.
struct Interpreter {
    contexts: Contexts,
    home: TempDir,
}

impl Interpreter {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        environment.insert("HOME".into(), home.path().into());
        environment.remove("JUPYTER_RUNTIME_DIR".as_ref() as &std::ffi::OsStr);
        let mut config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            python: "python3".into(),
            python_dir: PathBuf::from("/nonexistent"),
            agent: SocketAddr::from(([127, 0, 0, 1], 1)),
            zygote_on_stdin: false,
            warm_up: false,
            warm_modules: None,
            languages_building: false,
            environment,
        };
        change(&mut config);
        let interpreter = Self { contexts: Contexts::new(config), home };
        // Under a name that does not say Python: the pipes of Python kernels are not read.
        let argv = ["sh", "-c", "exec python3 \"$0\" \"$1\"", KERNEL, "{connection_file}"];
        interpreter.install("signalled", &argv, "signal");
        interpreter.install("messaged", &argv, "message");
        interpreter
    }

    fn install(&self, name: &str, argv: &[&str], interrupt_mode: &str) {
        let directory = self.home.path().join(".local/share/jupyter/kernels").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let manifest =
            serde_json::json!({ "argv": argv, "language": "lingua", "interrupt_mode": interrupt_mode });
        std::fs::write(directory.join("kernel.json"), manifest.to_string()).unwrap();
    }

    async fn begin(&self, language: &str, code: &str) -> mpsc::Receiver<Event> {
        self.begin_with(language, code, &[]).await
    }

    async fn begin_with(
        &self,
        language: &str,
        code: &str,
        variables: &[(&str, &str)],
    ) -> mpsc::Receiver<Event> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let request = ExecutionRequest {
            code: code.to_owned(),
            context_id: None,
            language: Some(language.to_owned()),
            env_vars: Some(variables.collect()),
        };
        self.contexts.execute(request, None).await.unwrap()
    }

    async fn run(&self, code: &str) -> Vec<Event> {
        all(self.begin("signalled", code).await).await
    }

    fn connection_files(&self) -> usize {
        let runtime = self.home.path().join(".local/share/jupyter/runtime");
        std::fs::read_dir(runtime).map_or(0, Iterator::count)
    }
}

async fn all(mut events: mpsc::Receiver<Event>) -> Vec<Event> {
    let mut seen = Vec::new();
    while let Some(event) = events.recv().await {
        if event != Event::Keepalive {
            seen.push(event);
        }
    }
    assert_eq!(seen.pop(), Some(Event::EndOfExecution));
    seen
}

/// Short forms of events.
fn short(events: &[Event]) -> Vec<String> {
    let in_short = |event: &Event| match event {
        Event::NumberOfExecutions { execution_count } => format!("#{execution_count}"),
        Event::Stdout(output) => format!("out {}", output.text),
        Event::Stderr(output) => format!("err {}", output.text),
        Event::Result(result) => {
            let kind = if result.is_main_result { "main" } else { "shown" };
            format!("{kind} {}", result.text.as_ref().and_then(|text| text.as_str()).unwrap_or_default())
        }
        Event::Error(error) => format!("{}: {}", error.name, error.value),
        Event::Keepalive => "keepalive".to_owned(),
        Event::EndOfExecution => "end".to_owned(),
    };
    events.iter().map(in_short).collect()
}

#[tokio::test]
async fn an_installed_kernel_is_a_language() {
    let interpreter = Interpreter::new();
    assert_eq!(short(&interpreter.run("x = 20").await), ["#1"]);
    let code = "[publish('stream', name='stdout', text=t) for t in ('a\\n', 'b')] and \
                publish('display_data', data={'text/plain': 'picture', 'image/png': 'iVBOR'}) or x + 1";
    let events = interpreter.run(code).await;
    assert_eq!(short(&events), ["#2", "out a\n", "out b", "shown picture", "main 21"]);
    let Event::Result(shown) = &events[3] else { panic!("{events:?}") };
    assert_eq!(
        **shown,
        ResultData { text: Some("picture".into()), png: Some("iVBOR".into()), ..ResultData::default() }
    );
    // The language that a kernel declares is another name of it.
    let context =
        interpreter.contexts.create(CreateContext { cwd: Some("/".into()), language: Some("Lingua".into()) });
    assert_eq!(context.await.unwrap().language, "lingua");
}

#[tokio::test]
async fn failures_are_errors_and_the_kernel_goes_on() {
    let interpreter = Interpreter::new();
    let events = interpreter.run("1 / 0").await;
    let expected = ExecutionError {
        name: "ZeroDivisionError".into(),
        value: "division by zero".into(),
        traceback: "red\nend".into(),
    };
    assert_eq!(events[1..], [Event::Error(expected)]);
    assert_eq!(short(&interpreter.run("2").await), ["#2", "main 2"]);
}

#[tokio::test]
async fn malformed_and_foreign_messages_are_ignored() {
    let interpreter = Interpreter::new();
    let code = "raw(b''); raw(b'x', b'<IDS|MSG>', b'00', b'{}', b'{}', b'{}', b'{}')\n\
                forged = kernel.message('stream', {'name': 'stdout', 'text': 'forged'}); forged[1] = b'0' * 64; raw(*forged)\n\
                kernel.parent, own = {'msg_id': 'another'}, kernel.parent\n\
                publish('stream', name='stdout', text='foreign'); publish('status', execution_state='idle')\n\
                kernel.parent = own\n\
                publish('stream'); publish('display_data', data=5); publish('update_display_data', data={'text/plain': 'u'})\n\
                publish('stream', name='stdout', text='heard')";
    assert_eq!(short(&interpreter.run(code).await), ["#1", "out heard"]);
}

#[tokio::test]
async fn what_is_written_past_the_kernel_is_not_lost() {
    let interpreter = Interpreter::new();
    let events = interpreter.run("import os\nos.system('echo child; echo oops >&2') or None").await;
    let mut texts = short(&events);
    texts.sort();
    assert_eq!(texts, ["#1", "err oops\n", "out child\n"]);
    interpreter.install("repeating", &["python3", KERNEL, "{connection_file}"], "signal");
    let code = "import os; os.system('echo again') or publish('stream', text='once')";
    assert_eq!(short(&all(interpreter.begin("repeating", code).await).await), ["#1", "out once"]);
}

#[tokio::test]
async fn reading_input_is_refused() {
    let interpreter = Interpreter::new();
    let events = interpreter.run("publish('stream', name='stdout', text=repr(ask('name?')))").await;
    let refused = "StdinNotImplementedError: code cannot read input here: there is nobody to ask";
    // The request for input comes on a socket of its own, which may be faster.
    let mut seen = short(&events);
    seen.sort();
    assert_eq!(seen, ["#1", refused, "out ''"]);
}

#[tokio::test]
async fn a_client_that_leaves_interrupts_its_code_and_the_state_stays() {
    let interpreter = Interpreter::new();
    for language in ["signalled", "messaged"] {
        all(interpreter.begin(language, "import time; x = 41").await).await;
        let mut events = interpreter.begin(language, "publish('stream', text='on'); time.sleep(600)").await;
        while !matches!(events.recv().await, Some(Event::Stdout(_))) {}
        drop(events);
        let after = all(interpreter.begin(language, "x + 1").await).await;
        assert_eq!(short(&after), ["#3", "main 42"], "{language}");
    }
}

#[tokio::test]
async fn code_that_will_not_stop_loses_its_kernel() {
    let interpreter = Interpreter::new();
    let code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                publish('stream', text='on'); time.sleep(600)";
    let mut events = interpreter.begin("signalled", code).await;
    while !matches!(events.recv().await, Some(Event::Stdout(_))) {}
    drop(events);
    assert_eq!(short(&interpreter.run("'new'").await), ["#1", "main new"]);
}

#[tokio::test]
async fn a_kernel_that_dies_is_replaced() {
    let interpreter = Interpreter::new();
    let events = interpreter.run("import os; publish('stream', text='last'); os._exit(1)").await;
    assert_eq!(short(&events), ["#1", "out last", "ContextRestarting: Context was restarted"]);
    // So is a kernel whose connection breaks.
    let events =
        interpreter.run("kernel.clients['iopub'].stream.shutdown(2) or __import__('time').sleep(600)").await;
    assert_eq!(short(&events).last().unwrap(), "ContextRestarting: Context was restarted");
    assert_eq!(short(&interpreter.run("1").await), ["#1", "main 1"]);
    assert_eq!(interpreter.connection_files(), 1);
}

#[tokio::test]
async fn a_kernel_that_is_asked_to_exit_ends_its_cell_first() {
    let interpreter = Interpreter::new();
    let leave = "extra = {'payload': [{'source': 'ask_exit'}]}";
    assert_eq!(short(&interpreter.run(leave).await), ["#1"]);
    assert_eq!(short(&interpreter.run("1").await), ["#1", "main 1"]);
}

#[tokio::test]
async fn variables_are_set_for_one_call() {
    let interpreter = Interpreter::new();
    let show = "import os\npublish('stream', text=repr(os.environ.get('OWN')))";
    let events = interpreter.begin_with("signalled", show, &[("OWN", "'\"\n#{x}")]).await;
    assert_eq!(short(&all(events).await), ["#1", "out '\\'\"\\n#{x}'"]);
    assert_eq!(short(&interpreter.run(show).await), ["#2", "out None"]);
}

#[tokio::test]
async fn a_kernel_starts_in_its_directory() {
    let interpreter = Interpreter::new();
    let place = tempfile::tempdir().unwrap();
    for (cwd, shown) in [(place.path(), place.path()), (Path::new("/does/not/exist"), Path::new("/"))] {
        let request =
            CreateContext { cwd: Some(cwd.to_str().unwrap().into()), language: Some("messaged".into()) };
        let context = interpreter.contexts.create(request).await.unwrap();
        assert_eq!(context.cwd, cwd.to_str().unwrap());
        let request = ExecutionRequest {
            code: "__import__('os').getcwd()".into(),
            context_id: Some(context.id),
            language: None,
            env_vars: None,
        };
        let events = all(interpreter.contexts.execute(request, None).await.unwrap()).await;
        assert_eq!(short(&events)[1], format!("main {}", shown.display()));
    }
}

#[tokio::test]
async fn the_error_of_a_missing_language_says_how_to_get_it() {
    let interpreter = Interpreter::new();
    let request = CreateContext { cwd: None, language: Some("r2d2".into()) };
    let error = interpreter.contexts.create(request).await.unwrap_err();
    let ContextError::Start(error) = error else { panic!("{error:?}") };
    let text = error.to_string();
    for part in ["language `r2d2`", "there are python", "lingua, signalled", "install `r2d2`"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("--languages"), "{text}");
}

#[tokio::test]
async fn a_language_of_the_layer_says_whether_it_is_coming() {
    for (languages_building, said) in [(true, "still being built"), (false, "`--languages all`")] {
        // With no programs on the search path there are no languages that need one.
        let interpreter = Interpreter::with(|config| {
            config.languages_building = languages_building;
            config.environment.insert("PATH".into(), "/nonexistent".into());
        });
        let request = CreateContext { cwd: None, language: Some("Ruby".into()) };
        let error = interpreter.contexts.create(request).await.unwrap_err();
        let ContextError::Start(error) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn a_kernel_that_does_not_start_says_why() {
    let interpreter = Interpreter::new();
    interpreter.install("missing", &["no-such-program", "{connection_file}"], "signal");
    interpreter.install("broken", &["sh", "-c", "echo 'libx.so is missing' >&2; exit 3"], "signal");
    for (language, why) in [("missing", "no-such-program"), ("broken", "libx.so is missing")] {
        let request = CreateContext { cwd: None, language: Some(language.into()) };
        let ContextError::Start(error) = interpreter.contexts.create(request).await.unwrap_err() else {
            panic!()
        };
        assert!(error.to_string().contains(why), "{error}");
    }
}
