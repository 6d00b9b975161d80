//! The code interpreter in templates (contract: interpreter; docs/decisions/0021-a-template-asks-for-the-interpreter.md). A template
//! asks for it with a variable, which every builder can set. Its own Python runs the kernels, with IPython beside it.

use std::collections::BTreeMap;

use sandcove_client::Program;
use sandcove_wire::boot::{
    ENV_INTERPRETER, ENV_PYTHON, ENV_WARM_MODULES, ENV_WARM_SOURCES, INTERPRETER, PYTHON, Service,
    WARM_DIRECTORY,
};
use serde::Deserialize;

use super::base::Base;
use super::engine::{Engine, FINALIZE, State};
use super::execute::{environment, line};
use super::failure::Failure;
use super::guest::{Guest, Run, as_root};
use super::steps::Step;
use crate::domain::build::LogLevel;
use crate::domain::context::{Context, Interpreter};

/// Version of the set-up: another one is done again.
pub(super) const VERSION: &str = "1";
/// Prefix of variables that are not for kernels.
const OWN: &str = "SANDCOVE_";
/// The set-up, for Python.
const SETUP: &str = include_str!("interpreter.py");
/// Finds a Python for the set-up.
const FIND: &str = r#"python=$(command -v python3 || command -v python) || {
    echo 'the code interpreter needs Python 3.9 or newer on the PATH of the template, and there is none: install it in an earlier step' >&2
    exit 1
}
exec "$python" -c "$1""#;
/// Maximum of what the set-up may report: a path, and directories.
const MAX_REPORT: usize = 8192;

/// Report of the set-up.
#[derive(Debug, Deserialize)]
struct Report {
    python: String,
    sources: Vec<String>,
}

/// Report of the check of the warm-up.
#[derive(Debug, Deserialize)]
struct Check {
    missing: BTreeMap<String, String>,
    threads: u32,
    ms: u64,
    #[serde(rename = "memoryMiB")]
    memory_mib: u64,
}

/// Wish of a template.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// The interpreter of its base, if that has one.
    Inherited,
    /// The interpreter with the template's own Python.
    Python,
    /// No interpreter.
    Nothing,
}

impl Wanted {
    fn of(context: &Context) -> Result<Self, Failure> {
        match context.env.get(ENV_INTERPRETER).map(|value| value.trim()) {
            None => Ok(Self::Inherited),
            Some("python" | "1" | "true") => Ok(Self::Python),
            Some("" | "none" | "0" | "false") => Ok(Self::Nothing),
            Some(other) => Err(Failure::new(format!(
                "unknown {ENV_INTERPRETER} '{other}': use `python`, or `none` for a template without the code interpreter"
            ))),
        }
    }
}

/// Whether the build has a phase for the interpreter: its variables are set, by the base or by a step.
pub(super) fn is_asked_for(base: &Base, steps: &[Step]) -> bool {
    let is_ours = |name: &str| name == ENV_INTERPRETER || name == ENV_WARM_MODULES;
    let in_step = |step: &Step| match step {
        Step::Env(pairs) => pairs.iter().any(|(name, _)| is_ours(name)),
        _ => false,
    };
    base.context.env.keys().any(|name| is_ours(name)) || steps.iter().any(in_step)
}

/// The interpreter among the services of a template.
pub(super) fn of_services(services: &[Service]) -> Option<Interpreter> {
    let service = services.iter().find(|service| service.name == INTERPRETER)?;
    let python = service.env.get(ENV_PYTHON).map_or(PYTHON, String::as_str).to_owned();
    Some(Interpreter { python, sources: service.env.get(ENV_WARM_SOURCES).cloned() })
}

/// The service that runs the interpreter of a template, if it has one. Kernels get the template's variables.
pub(super) fn service(context: &Context) -> Option<Service> {
    let interpreter = context.interpreter.as_ref()?;
    let mut env = environment(&context.env);
    env.retain(|name, _| !name.starts_with(OWN) || name == ENV_WARM_MODULES);
    env.insert(ENV_PYTHON.to_owned(), interpreter.python.clone());
    if let Some(sources) = &interpreter.sources {
        env.insert(ENV_WARM_SOURCES.to_owned(), sources.clone());
    }
    Some(Service::interpreter(env))
}

impl Engine<'_> {
    /// Sets the interpreter up as the variables of the context say. Returns whether files may have changed.
    pub(super) async fn set_up_interpreter(&mut self, state: &mut State) -> Result<bool, Failure> {
        match Wanted::of(&state.context)? {
            Wanted::Nothing => {
                state.context.interpreter = None;
                return Ok(false);
            }
            Wanted::Inherited if state.context.interpreter.is_none() => {
                let text = format!("{ENV_WARM_MODULES} has no effect without {ENV_INTERPRETER}=python");
                self.tell(LogLevel::Warn, &text);
                return Ok(false);
            }
            Wanted::Inherited => {}
            Wanted::Python => {
                let env = state.context.env.clone();
                let arguments = ["-c".to_owned(), line(FIND, &env), "sh".to_owned(), SETUP.to_owned()];
                let program = Program { envs: environment(&env), ..as_root("/bin/sh", arguments) };
                let report = self.report(state, &program, "set up").await?;
                state.context.interpreter = Some(interpreter(&report)?);
            }
        }
        self.check(state).await?;
        Ok(true)
    }

    /// Warms an interpreter up in the sandbox of the build, so that a template without a working one fails here.
    async fn check(&mut self, state: &State) -> Result<(), Failure> {
        let Some(service) = service(&state.context) else { return Ok(()) };
        let python = service.env.get(ENV_PYTHON).cloned().unwrap_or_default();
        let program = Program {
            cwd: Some(WARM_DIRECTORY.to_owned()),
            envs: service.env,
            ..as_root(&python, ["-m", "sandcove_kernel", "--check"].map(str::to_owned))
        };
        let report = self.report(state, &program, "start").await?;
        let check: Check = serde_json::from_str(&report)
            .map_err(|_| Failure::new("failed to start the code interpreter: it does not report"))?;
        if let Some((name, reason)) = check.missing.iter().next() {
            return Err(Failure::new(format!(
                "failed to import '{name}' of {ENV_WARM_MODULES} or of the packages that are imported ahead: {reason}"
            )));
        }
        if check.threads != 1 {
            return Err(Failure::new(format!(
                "the modules that are imported ahead start {} threads, which a fork would lack: name the others in {ENV_WARM_MODULES}",
                check.threads.saturating_sub(1)
            )));
        }
        let text = format!("A cold start takes {} ms and {} MiB", check.ms, check.memory_mib);
        self.tell(LogLevel::Info, &text);
        Ok(())
    }

    /// Runs a program and returns the last line of its output; the others go to the log.
    async fn report(&mut self, state: &State, program: &Program, what: &str) -> Result<String, Failure> {
        let log = self.job.log;
        let guest: &Guest = self.guest(state).await?;
        let (mut last, mut last_error) = (None::<String>, None::<String>);
        let mut note = |stream: &'static str, text: String| {
            let before = match stream {
                "stdout" => last.replace(text),
                _ => {
                    last_error = Some(text.clone());
                    Some(text)
                }
            };
            if let Some(text) = before {
                log.output(LogLevel::Debug, Some(FINALIZE), format!("[interpreter] [{stream}]: {text}"));
            }
        };
        let failed = |why: &str| Failure::new(format!("failed to {what} the code interpreter: {why}"));
        match guest.run(program, &mut note).await? {
            Run::Exited(exit) if exit.code == 0 => match last.filter(|report| report.len() <= MAX_REPORT) {
                Some(report) => Ok(report),
                None => Err(failed("it does not report")),
            },
            Run::Exited(exit) => Err(failed(last_error.as_deref().unwrap_or(&exit.status))),
            Run::NotStarted(why) => Err(failed(&why)),
        }
    }

    fn tell(&self, level: LogLevel, text: &str) {
        self.job.log.write(level, Some(FINALIZE), format!("[interpreter] {text}"));
    }
}

/// Reads what the set-up reports. The template wrote it: paths are only ever used inside of its sandboxes.
fn interpreter(report: &str) -> Result<Interpreter, Failure> {
    let unusable = || Failure::new("failed to set up the code interpreter: it does not report its Python");
    let Report { python, sources } = serde_json::from_str(report).map_err(|_| unusable())?;
    let is_plain = |path: &String| {
        !path.is_empty() && !path.contains([':', '\0']) && path.split('/').all(|part| part != "..")
    };
    if !python.starts_with('/') || !is_plain(&python) || !sources.iter().all(is_plain) {
        return Err(unusable());
    }
    Ok(Interpreter { python, sources: Some(sources.join(":")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(env: &[(&str, &str)]) -> Context {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Context { env, ..Context::of_user("user") }
    }

    #[test]
    fn a_variable_asks_for_the_interpreter() {
        for (value, wanted) in [
            ("python", Wanted::Python),
            ("1", Wanted::Python),
            ("", Wanted::Nothing),
            ("none", Wanted::Nothing),
        ] {
            assert_eq!(Wanted::of(&context(&[(ENV_INTERPRETER, value)])).ok(), Some(wanted), "{value}");
        }
        assert_eq!(Wanted::of(&context(&[])).ok(), Some(Wanted::Inherited));
        assert!(Wanted::of(&context(&[(ENV_INTERPRETER, "ruby")])).is_err());
    }

    #[test]
    fn kernels_get_the_templates_variables_and_none_of_ours() {
        let mut context =
            context(&[("A", "1"), ("SANDCOVE_INTERPRETER_LISTEN", "x"), (ENV_WARM_MODULES, "numpy")]);
        assert!(service(&context).is_none());
        context.interpreter = Some(Interpreter { python: "/opt/python".into(), sources: Some("opt".into()) });
        let env = service(&context).unwrap().env;
        let names: Vec<_> = env.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", ENV_PYTHON, ENV_WARM_MODULES, ENV_WARM_SOURCES]);
        let again = of_services(&[service(&context).unwrap()]);
        assert_eq!(again, context.interpreter);
    }

    #[test]
    fn a_report_that_names_odd_paths_is_refused() {
        let ok = r#"{"python":"/usr/bin/python3","sources":["usr/lib/python3.12"]}"#;
        assert_eq!(interpreter(ok).unwrap().sources.as_deref(), Some("usr/lib/python3.12"));
        for odd in [
            "",
            "[]",
            r#"{"python":"python3","sources":[]}"#,
            r#"{"python":"/../x","sources":[]}"#,
            r#"{"python":"/a:b","sources":[]}"#,
            r#"{"python":"/a","sources":["../../etc"]}"#,
        ] {
            assert!(interpreter(odd).is_err(), "{odd}");
        }
    }
}
