//! `sandcove bench`: the speed of a server, measured from outside, over HTTP, through its public port.

mod hold;
mod memory;
mod processors;
mod stats;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use sandcove_client::{Client, Command, NewSandbox, Sandbox};
use sandcove_wire::interpreter::{Event, ExecutionError, ExecutionRequest};
use serde_json::{Value, json};

use crate::commands::count;
use crate::commands::reach::{Place, Reach};
use crate::commands::run::is_closed_port;
use crate::output::out;
use stats::Series;

/// The most common mistake of models, with a traceback of a thousand frames.
const RECURSION: &str = "def f(n):\n    return 1 if n == 0 else n * f(n - 1)\nf(-3)";
const PANDAS: &str = "import pandas as pd\npd.DataFrame({'a': range(100)}).describe()";

/// Timeout of a sandbox, seconds. A sandbox is killed as soon as it has been measured.
const TIMEOUT: u32 = 300;
/// Time for the last sandboxes to be taken down, whose work counts.
const SETTLES: Duration = Duration::from_millis(500);

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// sandboxes to measure for each kind of first request [default: 20, or the concurrency if that is larger]
    #[arg(short, long)]
    n: Option<usize>,
    /// kind of first request to measure [default: all]
    #[arg(long, value_enum)]
    first: Option<First>,
    /// further requests in each sandbox, after the first
    #[arg(long, value_name = "N", default_value_t = 10)]
    warm: usize,
    /// pause between one sandbox and the next, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause: u64,
    /// number of sandboxes at the same time
    #[arg(short, long, default_value_t = 1)]
    concurrency: usize,
    /// template of the sandboxes
    #[arg(short, long, default_value = "code-interpreter-v1")]
    template: String,
    /// measure memory instead of speed, with this many sandboxes at the same time
    #[arg(long, value_name = "N", conflicts_with = "n")]
    hold: Option<usize>,
    #[command(flatten)]
    reach: Reach,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// The first request to a new sandbox. A second request finds much of the work done, so each kind gets sandboxes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum First {
    /// a command
    Command,
    /// the code `1+1`
    Code,
    /// the description of a pandas data frame
    Pandas,
    /// a recursion that Python stops, an error with a long traceback
    Recursion,
}

impl First {
    const ALL: [Self; 4] = [Self::Command, Self::Code, Self::Pandas, Self::Recursion];
}

/// The times of one sandbox. All but `warm` are counted from the create request.
struct Sample {
    first: First,
    created: Duration,
    /// Until the agent answers; only for sandboxes that run a command first.
    answers: Option<Duration>,
    /// Until the first result; `None` where the template has no interpreter.
    result: Option<Duration>,
    /// Later requests of the same kind.
    warm: Vec<Duration>,
}

/// Measures the server that `args` and `place` name, and prints the figures.
pub async fn bench(place: &Place, args: &BenchArgs) -> Result<ExitCode> {
    let client = args.reach.client(place)?;
    if let Some(count) = args.hold {
        hold::hold(&client, &place.data_dir, args, count).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_here = processors::is_here(client.url());
    let busy = || is_here.then(processors::busy).flatten();
    let (started, before) = (Instant::now(), busy());
    let samples = measure_all(&client, args).await?;
    let wall = started.elapsed();
    tokio::time::sleep(SETTLES).await;
    let worked = before.zip(busy()).map(|(before, after)| after.saturating_sub(before));
    report(&samples, wall, worked, args);
    Ok(ExitCode::SUCCESS)
}

async fn measure_all(client: &Client, args: &BenchArgs) -> Result<Vec<Sample>> {
    let kinds = args.first.map_or(First::ALL.to_vec(), |first| vec![first]);
    let n = args.n.unwrap_or(args.concurrency.max(20)) * kinds.len();
    let left = Arc::new(AtomicUsize::new(n));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..args.concurrency.clamp(1, n.max(1)) {
        let (client, template, left) = (client.clone(), args.template.clone(), Arc::clone(&left));
        let (kinds, pause, warm) = (kinds.clone(), Duration::from_millis(args.pause), args.warm);
        workers.spawn(async move {
            let mut samples = Vec::new();
            while let Ok(number) =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            {
                samples.push(measure(&client, &template, kinds[number % kinds.len()], warm).await?);
                tokio::time::sleep(pause).await;
            }
            anyhow::Ok(samples)
        });
    }
    let (mut samples, mut failure) = (Vec::new(), None);
    loop {
        let measured = tokio::select! {
            worker = workers.join_next() => match worker {
                Some(worker) => worker.context("a measurement was aborted")?,
                None => break,
            },
            _ = tokio::signal::ctrl_c() => {
                if failure.is_some() {
                    bail!("interrupted again: sandboxes may be left until their timeout of {TIMEOUT} s");
                }
                Err(anyhow!("interrupted"))
            }
        };
        match measured {
            Ok(measured) => samples.extend(measured),
            // No worker starts another sandbox; those in flight still kill theirs.
            Err(error) => {
                left.store(0, Ordering::Relaxed);
                failure = failure.or(Some(error));
            }
        }
    }
    failure.map_or(Ok(samples), Err)
}

async fn measure(client: &Client, template: &str, first: First, warm: usize) -> Result<Sample> {
    let new = NewSandbox { template: template.to_owned(), timeout: TIMEOUT, ..NewSandbox::default() };
    let start = Instant::now();
    let sandbox = client.create(&new).await?;
    let created = start.elapsed();
    let outcome = use_it(&sandbox, first, warm, start, created).await;
    client.kill(sandbox.id()).await?;
    outcome
}

async fn use_it(
    sandbox: &Sandbox,
    first: First,
    warm: usize,
    start: Instant,
    created: Duration,
) -> Result<Sample> {
    let mut sample = Sample { first, created, answers: None, result: None, warm: Vec::new() };
    if first == First::Command {
        sandbox.health().await?;
        sample.answers = Some(start.elapsed());
    }
    match request(sandbox, first).await {
        Ok(()) => sample.result = Some(start.elapsed()),
        // A template without the interpreter is measured without it.
        Err(error) if is_closed_port(&error) => return Ok(sample),
        Err(error) => return Err(error),
    }
    for _ in 0..warm {
        sample.warm.push(timed(request(sandbox, first)).await?);
    }
    Ok(sample)
}

async fn request(sandbox: &Sandbox, what: First) -> Result<()> {
    match what {
        First::Command => command(sandbox).await,
        First::Code => code(sandbox, "1+1").await,
        First::Pandas => code(sandbox, PANDAS).await,
        First::Recursion => recursion(sandbox).await,
    }
}

async fn timed(work: impl Future<Output = Result<()>>) -> Result<Duration> {
    let start = Instant::now();
    work.await?;
    Ok(start.elapsed())
}

async fn command(sandbox: &Sandbox) -> Result<()> {
    let command = Command { line: "echo hello".to_owned(), ..Command::default() };
    let exit = sandbox.run(&command, |_| {}).await?;
    if exit.code != 0 {
        bail!("`echo hello` ended with {}", exit.status);
    }
    Ok(())
}

async fn code(sandbox: &Sandbox, code: &str) -> Result<()> {
    match execute(sandbox, code).await? {
        (_, Some(error)) => bail!("`{code}` failed: {}: {}", error.name, error.value),
        (0, None) => bail!("`{code}` had no result"),
        _ => Ok(()),
    }
}

async fn recursion(sandbox: &Sandbox) -> Result<()> {
    match execute(sandbox, RECURSION).await? {
        (_, Some(error)) if error.name == "RecursionError" => Ok(()),
        (_, Some(error)) => bail!("`{RECURSION}` ended with {} instead of RecursionError", error.name),
        (_, None) => bail!("`{RECURSION}` did not fail"),
    }
}

/// Runs `code`, and returns the number of results and the error.
async fn execute(sandbox: &Sandbox, code: &str) -> Result<(usize, Option<ExecutionError>)> {
    let request =
        ExecutionRequest { code: code.to_owned(), context_id: None, language: None, env_vars: None };
    let (mut results, mut failure) = (0, None);
    sandbox
        .run_code(&request, |event| match event {
            Event::Result(_) => results += 1,
            Event::Error(error) => failure = Some(error),
            _ => {}
        })
        .await?;
    Ok((results, failure))
}

/// Prints the figures. `worked` is how long the processors of this host have worked, for all sandboxes and all else.
fn report(samples: &[Sample], wall: Duration, worked: Option<Duration>, args: &BenchArgs) {
    let series = |name, times: &dyn Fn(&Sample) -> Vec<Duration>| {
        let mut series = Series::new(name);
        samples.iter().for_each(|sample| series.extend(times(sample)));
        series
    };
    let of = |first| move |sample: &&Sample| sample.first == first;
    let result =
        |first| move |s: &Sample| Some(s).filter(of(first)).and_then(|s| s.result).into_iter().collect();
    let warm = |first| move |s: &Sample| Some(s).filter(of(first)).map_or(Vec::new(), |s| s.warm.clone());
    let all = [
        series("create -> 201", &|s| vec![s.created]),
        series("create -> agent answers", &|s| s.answers.into_iter().collect()),
        series("create -> first command", &result(First::Command)),
        series("create -> first result of 1+1", &result(First::Code)),
        series("create -> first result with pandas", &result(First::Pandas)),
        series("create -> first RecursionError", &result(First::Recursion)),
        series("command, warm", &warm(First::Command)),
        series("run_code 1+1, warm", &warm(First::Code)),
        series("run_code with pandas, warm", &warm(First::Pandas)),
        series("run_code with RecursionError, warm", &warm(First::Recursion)),
    ];
    let machine = machine();
    let worked_ms = worked.map(|worked| worked.as_secs_f64() * 1e3 / samples.len().max(1) as f64);
    if args.json {
        let series: Vec<Value> = all.iter().map(Series::json).collect();
        out!(
            "{}",
            json!({
                "machine": machine, "template": args.template, "concurrency": args.concurrency, "series": series,
                "wall_s": wall.as_secs_f64(), "processor_ms_per_sandbox": worked_ms,
            })
        );
        return;
    }
    out!("{}", machine_line(&machine));
    let (template, at_once, wall) = (&args.template, args.concurrency, wall.as_secs_f64());
    out!(
        "template {template}, {at_once} at a time, {} in {wall:.1} s; milliseconds",
        count(samples.len(), "sandbox")
    );
    if let Some(worked_ms) = worked_ms {
        out!(
            "the processors of this host worked {worked_ms:.1} ms for each sandbox, this program and all else included"
        );
    }
    out!("{:<40} {:>5} {:>9} {:>9} {:>9}", "", "n", "p50", "p90", "p99");
    for series in &all {
        out!("{}", series.line());
    }
}

/// The machine that the figures were measured on.
fn machine() -> Value {
    let field = |text: &str, key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = field(&memory, "MemTotal")
        .and_then(|value| value.split_whitespace().next().and_then(|kib| kib.parse().ok()))
        .unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": field(&cpu, "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_mib": kib / 1024,
        "kernel": kernel.trim(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn machine_line(machine: &Value) -> String {
    format!(
        "{}, {} cores, {} MiB, linux {}, sandcove {}",
        machine["cpu"].as_str().unwrap_or("unknown cpu"),
        machine["cores"],
        machine["memory_mib"],
        machine["kernel"].as_str().unwrap_or("?"),
        machine["version"].as_str().unwrap_or("?"),
    )
}
