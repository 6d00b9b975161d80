//! `sandcove run`: one piece of code in a sandbox of its own.

mod printer;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_client::{Client, Command, CommandEvent, Input, NewSandbox, ProcessEvent, Sandbox};
use sandcove_dockerfile::quoted;
use sandcove_wire::api::sandbox::VolumeMount;
use sandcove_wire::id::SandboxId;
use sandcove_wire::interpreter::ExecutionRequest;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::candidates;
use super::copy::{name_of, upload};
use super::exec::{feed, is_gone};
use super::lifecycle::mount;
use super::reach::{Place, Reach};
use super::template::image::of_image;
use super::{timeout, variable};
use crate::data_dir::ServerFile;
use crate::host::Host;
use crate::output::note;
use crate::settings::{LanguageChoice, Settings};
use crate::signals::{Caught, Signals};
use printer::{ExecutionPrinter, Style};
use source::Source;

/// Exit status of a command that took too long, as `timeout` reports it.
const TIMED_OUT: u8 = 124;

/// Template of a run that names none.
const DEFAULT_TEMPLATE: &str = "code-interpreter-v1";

/// Working directory of the code.
const HOME: &str = "/home/user";

/// Exit status of a program that a closed pipe ended, as shells report it.
const BROKEN_PIPE: u8 = 128 + 13;

/// How long the connection to a sandbox may stay open after the sandbox has reached its timeout.
const END_MARGIN: Duration = Duration::from_millis(500);

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "A file runs as a script, and its exit status becomes the exit status of the command. With -c, the value of \
                  the last expression is printed too. The working directory is /home/user, where the file and those of --file are. The first \
                  run with --image builds a template, which later runs use until it is deleted. If no server is running, one is started for the run, which needs root."
)]
pub struct CodeRunArgs {
    #[command(flatten)]
    code: CodeArgs,
    /// template of the sandbox
    #[arg(short, long, default_value = DEFAULT_TEMPLATE)]
    #[arg(add = candidates::templates())]
    template: String,
    /// image for the sandbox, for bash, or for python if the image has Python 3.9 or newer
    #[arg(short, long, value_name = "IMAGE", conflicts_with = "template")]
    image: Option<String>,
    /// mount a volume; repeatable
    #[arg(short = 'v', long = "mount", visible_alias = "volume", value_name = "NAME:PATH", value_parser = mount)]
    mounts: Vec<VolumeMount>,
    /// run in this sandbox instead of a new one, and leave it running
    #[arg(short, long, value_name = "ID", conflicts_with_all = ["template", "image", "mounts", "envs", "keep"])]
    #[arg(add = candidates::running())]
    sandbox: Option<SandboxId>,
    /// leave the new sandbox running until --timeout, and print its id on standard error
    #[arg(short, long)]
    keep: bool,
    /// set an environment variable for the code; repeatable
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    envs: Vec<(String, String)>,
    #[command(flatten)]
    reach: Reach,
}

/// The code of a run, and what is printed of it.
#[derive(Debug, Args)]
pub struct CodeArgs {
    /// file to run (`-` for standard input), followed by its arguments; options go before it
    #[arg(trailing_var_arg = true, value_name = "FILE [ARGUMENT]")]
    words: Vec<String>,
    /// code to run; further words are its arguments
    #[arg(short, long)]
    code: Option<String>,
    /// language of the code [default: from the file extension, or python]
    #[arg(short, long)]
    language: Option<String>,
    /// copy a file or directory of this machine beside the code; repeatable
    #[arg(short, long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// time until the code is stopped with exit status 124, such as 300 or 5m
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = timeout)]
    timeout: u32,
    /// directory for pictures that the code shows
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// print output, results and errors as one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// Arguments of `sandbox run`.
#[derive(Debug, Args)]
#[command(
    after_help = "A file runs as a script, and its exit status becomes the exit status of the command. With -c, the value of \
                  the last expression is printed too. The working directory is /home/user, where the file and those of --file are."
)]
pub struct InSandboxArgs {
    /// id of the sandbox, which goes on running
    #[arg(add = candidates::running())]
    id: SandboxId,
    #[command(flatten)]
    code: CodeArgs,
}

impl CodeArgs {
    /// The file and the arguments of the script.
    fn file(&self) -> (Option<&str>, &[String]) {
        match (&self.code, self.words.split_first()) {
            (None, Some((file, arguments))) => (Some(file), arguments),
            _ => (None, &self.words),
        }
    }
}

/// Runs the code in an existing sandbox.
pub async fn in_sandbox(client: &Client, args: InSandboxArgs) -> Result<ExitCode> {
    let args = CodeRunArgs {
        code: args.code,
        template: DEFAULT_TEMPLATE.to_owned(),
        image: None,
        mounts: Vec::new(),
        sandbox: Some(args.id),
        keep: false,
        envs: Vec::new(),
        reach: Reach::default(),
    };
    Run::prepare(&args)?.on(client).await
}

/// Runs the code on the server that flags, variables or the data directory name, or on one that is started for the run.
pub async fn run(settings: &Settings, place: &Place, args: &CodeRunArgs) -> Result<ExitCode> {
    let run = Run::prepare(args)?;
    match args.reach.target(place)? {
        // Only the server of this machine can be started here.
        Some(target) if target.is_named || ServerFile::reachable(&place.data_dir).await?.is_some() => {
            run.on(&target.client()?).await
        }
        _ => become_server(settings, &run).await,
    }
}

async fn become_server(settings: &Settings, run: &Run<'_>) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "no server is running, and starting one needs root\nhint: start one with `sudo sandcove up`, or set E2B_API_URL \
             and E2B_API_KEY to use another server"
        );
    }
    let mut settings = settings.clone();
    settings.listen = ([127, 0, 0, 1], 0).into();
    // The run needs one sandbox, so a pool would be of no use.
    settings.spares = 0;
    settings.languages = LanguageChoice::AsBuilt;
    let is_new = !crate::server_dir::database(&settings.data_dir).exists();
    note!(
        "no server is running; starting one for this run in {}{}",
        settings.data_dir.display(),
        if is_new { "; this builds the templates first, which takes several minutes" } else { "" }
    );
    let host = Host::prepare(&settings).await?;
    let client = host.file().client()?;
    let stop = CancellationToken::new();
    let server = tokio::spawn(host.serve(stop.clone()));
    let outcome = run.on(&client).await;
    stop.cancel();
    server.await.context("the server of this run failed")??;
    outcome
}

/// Code to run, with the options of its run.
struct Run<'a> {
    source: Source,
    prelude: Option<String>,
    args: &'a CodeRunArgs,
}

/// How a run ended.
enum Ended {
    ByItself,
    TimedOut,
    Caught(Caught),
    /// The reader of the output has gone.
    Unread,
}

impl<'a> Run<'a> {
    /// Reads the code, and checks the options.
    fn prepare(args: &'a CodeRunArgs) -> Result<Self> {
        let (file, arguments) = args.code.file();
        let source = Source::read(file, args.code.code.as_ref(), args.code.language.as_ref())?;
        let prelude = source.prelude(arguments)?;
        if let Some(image) = &args.image
            && !["python", "bash"].contains(&source.language.as_str())
        {
            bail!(
                "image `{image}` runs python and bash, and not {}\nhint: a template with `FROM code-interpreter-v1` runs other languages",
                source.language
            );
        }
        if let Some(missing) = args.code.files.iter().find(|path| !path.exists()) {
            bail!(
                "`{}` does not exist\nhint: --file takes files and directories of this machine",
                missing.display()
            );
        }
        Ok(Self { source, prelude, args })
    }

    async fn on(&self, client: &Client) -> Result<ExitCode> {
        let template = match &self.args.image {
            Some(image) => of_image(client, image, self.source.language != "bash").await?,
            None => self.args.template.clone(),
        };
        let new = NewSandbox {
            template,
            timeout: self.args.code.timeout,
            envs: self.args.envs.iter().cloned().collect(),
            volume_mounts: self.args.mounts.clone(),
            ..NewSandbox::default()
        };
        let limit = Duration::from_secs(self.args.code.timeout.into());
        let mut signals = Signals::catch()?;
        let started = Instant::now();
        // Not cancelled: the sandbox of a dropped request would keep running.
        let sandbox = match &self.args.sandbox {
            Some(id) => client.attach(id).await?,
            None => client.create(&new).await?,
        };
        let mut printer = ExecutionPrinter::new(Style {
            name: self.source.name().to_owned(),
            values: self.source.shows_values(),
            json: self.args.code.json,
            directory: self.args.code.out.clone(),
        });
        let outcome = tokio::select! {
            outcome = self.execute(&sandbox, &mut printer) => match outcome {
                // The sandbox reaches its timeout at the same moment, and may be first.
                Err(_) if started.elapsed() + END_MARGIN > limit => Ok(Ended::TimedOut),
                Err(error) if is_gone(client, sandbox.id()).await => {
                    Err(error.context("the sandbox was killed while the code ran"))
                }
                outcome => outcome,
            },
            () = tokio::time::sleep(limit.saturating_sub(started.elapsed())) => Ok(Ended::TimedOut),
            signal = signals.next() => Ok(Ended::Caught(signal)),
        };
        match (&self.args.sandbox, self.args.keep) {
            (None, false) => drop(client.kill(sandbox.id()).await?),
            (None, true) => note!("sandbox {} keeps running", sandbox.id()),
            (Some(_), _) => {}
        }
        let ended = outcome.map_err(|error| self.explain(error))?;
        match ended {
            Ended::TimedOut => note!("error: stopped after {} s", self.args.code.timeout),
            Ended::ByItself | Ended::Caught(_) | Ended::Unread => {}
        }
        let status = printer.finish(matches!(ended, Ended::TimedOut))?;
        Ok(ExitCode::from(match ended {
            Ended::ByItself => status,
            Ended::TimedOut => TIMED_OUT,
            Ended::Caught(signal) => signal.status(),
            Ended::Unread => BROKEN_PIPE,
        }))
    }

    async fn execute(&self, sandbox: &Sandbox, printer: &mut ExecutionPrinter) -> Result<Ended> {
        for path in &self.args.code.files {
            upload(sandbox, path, &format!("{HOME}/{}", name_of(path)?), None, true).await?;
        }
        if self.source.language == "bash" {
            return self.script(sandbox, printer).await;
        }
        if let Some(file) = &self.source.file {
            let path = format!("{HOME}/{file}");
            sandbox.write_file(&path, self.source.code.clone().into_bytes().into()).await?;
        }
        let request = |code: &str| ExecutionRequest {
            code: code.to_owned(),
            context_id: None,
            language: Some(self.source.language.clone()),
            env_vars: None,
        };
        if let Some(prelude) = &self.prelude {
            sandbox.run_code(&request(prelude), |_| {}).await?;
        }
        let unread = Notify::new();
        let request = request(&self.source.code);
        let running = sandbox.run_code(&request, |event| {
            if !printer.take(event) {
                unread.notify_one();
            }
        });
        tokio::select! {
            outcome = running => outcome.map(|()| Ended::ByItself).map_err(anyhow::Error::from),
            () = unread.notified() => Ok(Ended::Unread),
        }
    }

    /// Runs a shell script as a program, with input, arguments and an exit status.
    async fn script(&self, sandbox: &Sandbox, printer: &mut ExecutionPrinter) -> Result<Ended> {
        let name = self.source.file.as_deref().unwrap_or("bash");
        let path = format!("/tmp/.sandcove-run/{name}");
        sandbox.write_file(&path, self.source.code.clone().into_bytes().into()).await?;
        let words = std::iter::once(path.as_str()).chain(self.args.code.file().1.iter().map(String::as_str));
        let words: Vec<String> = words.map(quoted).collect();
        // `-` has consumed standard input.
        let takes_input = self.args.code.file().0 != Some("-");
        let input = if takes_input { Input::Pipe } else { Input::Closed };
        let command = Command { line: format!("exec bash {}", words.join(" ")), input, ..Command::default() };
        let mut process = sandbox.start(&command).await?;
        let feeder = takes_input.then(|| tokio::spawn(feed(process.controls())));
        let ended = loop {
            match process.next().await? {
                ProcessEvent::Output(CommandEvent::Stdout(bytes)) => printer.print(&bytes),
                ProcessEvent::Output(CommandEvent::Stderr(bytes)) => printer.print_error(&bytes),
                ProcessEvent::Exit(exit) => {
                    printer.exit(exit.shell_status());
                    break Ended::ByItself;
                }
            }
            if printer.is_closed() {
                break Ended::Unread;
            }
        };
        if let Some(feeder) = feeder {
            feeder.abort();
        }
        Ok(ended)
    }

    /// Rewords a refusal of the server for users of this command.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let text = error.to_string();
        if is_closed_port(&error) {
            let (what, instead) = match (&self.args.sandbox, &self.args.image) {
                (Some(id), _) => (format!("sandbox {id}"), "a sandbox of the template code-interpreter-v1"),
                (None, Some(image)) => {
                    (format!("the template of image `{image}`"), "`--template code-interpreter-v1`")
                }
                (None, None) => {
                    (format!("template `{}`", self.args.template), "`--template code-interpreter-v1`")
                }
            };
            return anyhow::anyhow!(
                "{what} has no code interpreter; use {instead}, or run programs in a sandbox with `sandcove sandbox exec`"
            );
        }
        match text.split_once("no kernel for language ") {
            Some((_, reason)) => anyhow::anyhow!("unknown language {reason}"),
            None => error,
        }
    }
}

/// Whether no interpreter listens in the sandbox.
pub fn is_closed_port(error: &anyhow::Error) -> bool {
    error.downcast_ref::<sandcove_client::Error>().and_then(sandcove_client::Error::status) == Some(502)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CodeRunArgs,
    }

    fn parse(words: &[&str]) -> CodeArgs {
        let words = std::iter::once(&"run").chain(words);
        <Line as clap::Parser>::try_parse_from(words).unwrap().args.code
    }

    #[test]
    fn what_follows_the_file_is_for_the_script() {
        let args = parse(&["--timeout", "2", "a.py", "x", "--timeout", "3", "-c"]);
        assert_eq!(args.file(), (Some("a.py"), &["x", "--timeout", "3", "-c"].map(String::from)[..]));
        assert_eq!((args.timeout, &args.code), (2, &None));
        let args = parse(&["-c", "code", "x"]);
        assert_eq!(args.file(), (None, &["x".to_owned()][..]));
    }
}
