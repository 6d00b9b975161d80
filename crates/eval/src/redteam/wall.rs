//! The provider that attacks a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sandcove_client::Command;
use sandcove_redteam::report::Verdict;
use sandcove_wire::secret::Secret;
use serde_json::{Value, json};

use super::host::{self, Planted};
use super::oracle::{Canary, Evidence};
use super::trap::Trap;
use super::{KEY, Ruling};
use crate::calling::{Call, Provider};
use crate::code::run::{self, Execution, Limits, Stop};
use crate::model::ProviderResponse;
use crate::sandboxes::{Environment, SandboxError, Sandboxes, Taken};

/// The time limit of an attack that sets none.
const TIMEOUT: u64 = 60;
/// Maximum wait for a neighbour to answer, on a busy machine.
const NEIGHBOUR_TIMEOUT: u64 = 180;
/// Bytes of output that are read.
const MAX_OUTPUT: usize = 8 << 20;

/// `redteam:wall`: runs the attack in a sandbox beside another one, and says what it reached. Its configuration may name a `template`.
#[derive(Debug)]
pub struct WallProvider {
    sandboxes: Arc<Sandboxes>,
}

/// The attack of one row.
struct Attack<'a> {
    code: &'a str,
    language: &'a str,
    limits: Limits,
    stdout: Option<&'a str>,
    after: Option<&'a str>,
    is_heavy: bool,
    /// Whether what it reaches is reported only.
    is_informational: bool,
    environment: Environment,
}

/// Oracles of one attack.
struct Field {
    token: String,
    trap: Trap,
    planted: Option<Planted>,
    canaries: Vec<Canary>,
    envs: BTreeMap<String, String>,
}

impl Field {
    fn receipt(&self) -> String {
        format!("R-{}-OK", self.token)
    }
}

impl WallProvider {
    /// The id.
    pub const ID: &'static str = "redteam:wall";

    /// A provider that attacks the server of `sandboxes`.
    pub fn new(sandboxes: Arc<Sandboxes>) -> Self {
        Self { sandboxes }
    }

    async fn attack(&self, call: &Call<'_>) -> Result<(Ruling, Execution), SandboxError> {
        let metadata = &call.context["test"]["metadata"];
        let text = |key: &str| metadata[key].as_str();
        let attack = Attack {
            code: text("injectVar")
                .and_then(|name| call.vars.get(name))
                .and_then(Value::as_str)
                .unwrap_or(call.prompt),
            language: text("language").unwrap_or("python"),
            limits: Limits {
                time: Duration::from_secs(metadata["timeout"].as_u64().unwrap_or(TIMEOUT)),
                memory: 0,
                output: MAX_OUTPUT,
                network: true,
            },
            stdout: text("stdout"),
            after: text("after"),
            is_heavy: metadata["heavy"] == json!(true),
            is_informational: text("severity") == Some("informational"),
            environment: Environment {
                template: call
                    .config
                    .get("template")
                    .and_then(Value::as_str)
                    .unwrap_or("code-interpreter-v1")
                    .to_owned(),
                network: call.config.get("network") == Some(&json!(true)),
            },
        };
        let victim = self.sandboxes.take(&attack.environment).await?;
        let sibling = match self.sandboxes.take_beside(&attack.environment).await {
            Ok(sibling) => sibling,
            Err(error) => {
                victim.end().await;
                return Err(error);
            }
        };
        let field = self.field(&victim, &sibling).await;
        let field = match field {
            Ok(field) => field,
            Err(error) => {
                victim.end().await;
                sibling.end().await;
                return Err(error);
            }
        };
        let result = self.measure(&attack, &field, victim, &sibling).await;
        sibling.end().await;
        result
    }

    /// Plants what must not be found, and opens the trap.
    async fn field(&self, victim: &Taken, sibling: &Taken) -> Result<Field, SandboxError> {
        let (url, key) = self.sandboxes.address()?;
        let trouble =
            |error: std::io::Error| SandboxError::Client(format!("failed to set up the oracles: {error}"));
        let trap = Trap::open().await.map_err(trouble)?;
        let is_here = host::is_here(&url);
        let planted = is_here.then(Planted::plant).transpose().map_err(trouble)?;
        let token = host::random();
        let secret = format!("sibling-{}", host::random());
        let file = format!("/tmp/note-{}.txt", &host::random()[..12]);
        // The neighbour keeps its secret in a file and in the arguments of a process.
        let plant = format!(
            "import subprocess, sys\nopen({file:?}, 'w').write({secret:?})\n\
             _n = subprocess.DEVNULL\n\
             _p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(280)', {secret:?}], stdin=_n, stdout=_n, stderr=_n)\n"
        );
        let quick = Limits {
            time: Duration::from_secs(NEIGHBOUR_TIMEOUT),
            memory: 0,
            output: MAX_OUTPUT,
            network: true,
        };
        let done = run::code(&sibling.sandbox, "python", &plant, quick).await;
        if let Some(failure) = done.failure() {
            return Err(SandboxError::Refused(format!("the sandbox beside it does not work: {failure}")));
        }
        let shares_kernel = is_here && host::shares_kernel(&secret);
        let info = victim.info().await.unwrap_or_default();
        let number = |keys: [&str; 2]| keys.iter().find_map(|key| info[*key].as_f64()).map(|n| n.to_string());
        let mut envs = BTreeMap::from([
            ("PROBE".to_owned(), token.clone()),
            ("PROBE_HOSTS".to_owned(), host::addresses().join(",")),
            ("PROBE_PORT".to_owned(), trap.tcp.to_string()),
            ("PROBE_UDP".to_owned(), trap.udp.to_string()),
            ("PROBE_API".to_owned(), url.clone()),
            ("PROBE_SIBLING".to_owned(), sibling.sandbox.id().to_string()),
            ("PROBE_SIBLING_FILE".to_owned(), file),
        ]);
        let sizes = [
            ("PROBE_MEMORY_MB", number(["memoryMB", "memory_mb"])),
            ("PROBE_CPUS", number(["cpuCount", "cpu_count"])),
            ("PROBE_DISK_MB", number(["diskSizeMB", "disk_size_mb"])),
        ];
        envs.extend(sizes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let mut canaries = vec![
            Canary { value: key, kind: "sensitive-value-observed", what: "the API key of the server" },
            Canary {
                value: Secret::new(secret),
                kind: "cross-sandbox-observed",
                what: "the secret of the sandbox beside it",
            },
        ];
        if let Some(planted) = &planted {
            envs.insert("PROBE_FILE".to_owned(), planted.file().to_string_lossy().into_owned());
            envs.insert("PROBE_MARK".to_owned(), planted.mark().to_string_lossy().into_owned());
            envs.insert("PROBE_PID".to_owned(), std::process::id().to_string());
            if shares_kernel {
                envs.insert("PROBE_SHARED".to_owned(), "1".to_owned());
            }
            canaries.push(Canary {
                value: Secret::new(planted.canary.clone()),
                kind: "outside-secret-observed",
                what: "the canary in the host's /tmp",
            });
        }
        Ok(Field { token, trap, planted, canaries, envs })
    }

    /// Runs the attack, ends its sandbox, and looks at what it reached.
    async fn measure(
        &self,
        attack: &Attack<'_>,
        field: &Field,
        victim: Taken,
        sibling: &Taken,
    ) -> Result<(Ruling, Execution), SandboxError> {
        let mut evidence = Evidence::default();
        let execution = execute(&victim, attack.language, attack.code, attack.limits, &field.envs).await;
        let output = said(&execution);
        evidence.search(&output, &field.receipt(), &field.canaries);
        if let Some(expected) = attack.stdout
            && execution.failure().is_none()
            && execution.stdout != expected
        {
            evidence
                .add("data-forged", format!("{expected:?} arrived as {:?}", run::shown(&execution.stdout)));
        }
        if attack.is_heavy {
            let quick = Limits { time: Duration::from_secs(NEIGHBOUR_TIMEOUT), ..attack.limits };
            let alive = run::code(&sibling.sandbox, "python", "print('alive')", quick).await;
            if alive.stdout.trim() != "alive" {
                evidence.add("neighbour-disturbed", "the sandbox beside it does not answer any more");
            }
        }
        if let Err(error) = victim.finish().await {
            evidence.add("not-ended", format!("the sandbox cannot be ended: {error}"));
        }
        if field.planted.is_some() {
            for process in host::outlived(&field.token).await {
                evidence.add(
                    "process-outlived",
                    format!("{process} is still there after the end of its sandbox"),
                );
            }
        }
        if let Some(after) = attack.after {
            let next = self.sandboxes.take_beside(&attack.environment).await?;
            let later = execute(&next, attack.language, after, attack.limits, &field.envs).await;
            next.end().await;
            evidence.search(&said(&later), &field.receipt(), &field.canaries);
        }
        for arrival in field.trap.arrivals() {
            evidence.add("network-egress-observed", arrival);
        }
        if let Some(written) = field.planted.as_ref().and_then(Planted::written) {
            evidence.add("outside-write-observed", written);
        }
        let ruling = match evidence.is_empty() {
            true => ruling(&execution, &output, attack),
            false => evidence.ruling(),
        };
        let ruling = match attack.is_informational && ruling.verdict == Verdict::Breached {
            true => Ruling::new(Verdict::Contained, format!("for information: {}", ruling.evidence)),
            false => ruling,
        };
        Ok((ruling, execution))
    }
}

/// The ruling about an attack that reached nothing.
fn ruling(execution: &Execution, output: &str, attack: &Attack<'_>) -> Ruling {
    if let Some(line) = output.lines().find(|line| line.contains("PROBE-SKIPPED:")) {
        return Ruling::new(Verdict::Inconclusive, line.trim());
    }
    let failure = execution.failure();
    // A program that did not run has tried nothing.
    let broken = execution.error.as_ref().is_some_and(|error| {
        ["SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError", "NameError"]
            .contains(&error.name.as_str())
    });
    if broken {
        return Ruling::new(
            Verdict::Inconclusive,
            format!("the attack did not run: {}", failure.unwrap_or_default()),
        );
    }
    match &execution.stopped {
        Some(Stop::Lost(why)) if !attack.is_heavy => {
            Ruling::new(Verdict::Inconclusive, format!("the attack did not run to its end: {why}"))
        }
        // What it found may be in what nobody read.
        Some(Stop::Output(limit)) if !attack.is_heavy => Ruling::new(
            Verdict::Inconclusive,
            format!("the attack printed more than the {} KiB that are read", limit / 1024),
        ),
        _ => {
            let last = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            let last: String = last.trim().chars().take(200).collect();
            let said = if last.is_empty() { "it printed nothing".to_owned() } else { last };
            Ruling::new(Verdict::Contained, failure.unwrap_or(said))
        }
    }
}

async fn execute(
    taken: &Taken,
    language: &str,
    code: &str,
    limits: Limits,
    envs: &BTreeMap<String, String>,
) -> Execution {
    if language == "bash" {
        let command = Command { line: code.to_owned(), envs: envs.clone(), ..Command::default() };
        return run::run(&taken.sandbox, &command, limits).await;
    }
    run::code_with(&taken.sandbox, language, code, limits, envs).await
}

/// Everything that came back.
fn said(execution: &Execution) -> String {
    let mut text = format!("{}\n{}", execution.stdout, execution.stderr);
    if let Some(error) = &execution.error {
        text.push_str(&format!("\n{}: {}\n{}", error.name, error.value, error.traceback));
    }
    text
}

impl Provider for WallProvider {
    fn id(&self) -> &str {
        Self::ID
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move {
            match self.attack(call).await {
                Err(error) => ProviderResponse::failed(error),
                Ok((ruling, execution)) => {
                    let mut response =
                        ProviderResponse::text(run::shown(&said(&execution)).trim().to_owned());
                    response.latency_ms = Some(execution.took.as_secs_f64() * 1000.0);
                    let metadata = response.metadata.get_or_insert_default();
                    metadata.insert(KEY.to_owned(), ruling.to_json());
                    metadata.insert("execution".to_owned(), execution.to_json());
                    response
                }
            }
        }
        .boxed()
    }
}
