//! `sandcove template build`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use sandcove_client::{BuildEnd, Client, NewSandbox, Sandbox};
use sandcove_dockerfile::context::Context;
use sandcove_dockerfile::plan::{Options, Origin, Plan};
use sandcove_dockerfile::{Ignore, source};
use sandcove_wire::api::build::{NewTemplate, RequestedBuild, StartBuild, StepMount, TemplateStep};
use sandcove_wire::boot::{ENV_INTERPRETER, ENV_WARM_MODULES};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use tempfile::TempDir;
use tokio::fs::File;

use super::assemble::{Assembled, Files, Lines, Sources, digest};
use super::builtin::Builtin;
use super::continues;
use super::extract::Extraction;
use super::pinned::pinned;
use super::printer::{Failure, Printer};
use super::project::{Project, checked_name};
use super::registry;
use super::secret::{self, SecretOption};
use crate::commands::{count, variable};
use crate::output::note;
use crate::report::list_of;
use crate::signals::Signals;

/// Life of a sandbox that files are copied from, in seconds.
const STAGE_TIMEOUT: u32 = 1800;

/// Options of builds.
#[derive(Debug, Args)]
pub struct BuildOptions {
    /// path of the Dockerfile [default: e2b.Dockerfile or Dockerfile of the directory]
    #[arg(short, long, value_name = "FILE", short_alias = 'd', alias = "dockerfile")]
    file: Option<PathBuf>,
    /// start command: runs once in every new sandbox [default: ENTRYPOINT and CMD]
    #[arg(short, long, value_name = "COMMAND")]
    cmd: Option<String>,
    /// command that succeeds when a new sandbox is ready [default: `sleep 20` with a start command]
    #[arg(long, value_name = "COMMAND", alias = "ready-cmd")]
    ready: Option<String>,
    /// number of CPUs of sandboxes: 1 or an even number [default: 2]
    #[arg(long, value_name = "NUMBER", alias = "cpu-count")]
    cpu: Option<i64>,
    /// memory of sandboxes in MiB, an even number [default: 1024]
    #[arg(long, value_name = "MIB", alias = "memory-mb")]
    memory: Option<i64>,
    /// disk of sandboxes in MiB, without the files of the template [default: that of the server]
    #[arg(long, value_name = "MIB", alias = "min-free-disk-mb")]
    disk: Option<i64>,
    /// value of an ARG; repeatable
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = variable)]
    args: Vec<(String, String)>,
    /// secret for `RUN --mount=type=secret`: id=ID,src=PATH or id=ID,env=NAME; repeatable
    #[arg(long = "secret", value_name = "SECRET", value_parser = secret::parse)]
    secrets: Vec<SecretOption>,
    /// tag of the build beside that of the name; repeatable [default: default]
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// stage to build [default: the last one]
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// set up the code interpreter with the Python of the image, 3.9 or newer [default: that of the base]
    #[arg(long)]
    interpreter: bool,
    /// modules that the code interpreter imports ahead, separated by commas [default: numpy, pandas, matplotlib and Pillow, those
    /// that are installed]
    #[arg(long, value_name = "MODULES")]
    warm_modules: Option<String>,
    /// run every step, and pull the base image again
    #[arg(long)]
    no_cache: bool,
    /// print a JSON object for each event on standard output
    #[arg(long)]
    json: bool,
}

impl BuildOptions {
    /// The step that asks for the code interpreter: the variables that the server knows.
    fn interpreter_step(&self) -> Option<TemplateStep> {
        let asked = self.interpreter.then(|| (ENV_INTERPRETER.to_owned(), "python".to_owned()));
        let modules = self.warm_modules.clone().map(|modules| (ENV_WARM_MODULES.to_owned(), modules));
        let args: Vec<String> =
            asked.into_iter().chain(modules).flat_map(|(name, value)| [name, value]).collect();
        (!args.is_empty()).then(|| TemplateStep { kind: "ENV".to_owned(), args, ..TemplateStep::default() })
    }
}

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// build context: the directory that COPY and ADD take files from
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// name of the template, perhaps with a tag: NAME[:TAG] [default: that of e2b.toml]
    #[arg(short, long)]
    name: Option<String>,
    /// build a template that is shipped with this program, instead of a directory
    #[arg(long, value_name = "TEMPLATE", value_enum, conflicts_with_all = ["directory", "file"])]
    builtin: Option<Builtin>,
    #[command(flatten)]
    options: BuildOptions,
}

/// Arguments of `create`, which are those of the E2B CLI.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// name of the template
    name: String,
    /// build context
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    path: PathBuf,
    #[command(flatten)]
    options: BuildOptions,
}

impl From<CreateArgs> for BuildArgs {
    fn from(args: CreateArgs) -> Self {
        Self { directory: args.path, name: Some(args.name), builtin: None, options: args.options }
    }
}

/// Builds a template, and returns 1 if a step fails.
pub async fn build(client: &Client, args: BuildArgs) -> Result<ExitCode> {
    let mut signals = Signals::catch()?;
    let printer = Printer::new(args.options.json);
    let progress = Progress::default();
    let outcome = tokio::select! {
        outcome = run(client, &args, &printer, &progress) => Ok(outcome),
        signal = signals.next() => Err(signal),
    };
    clean_up(client, &progress).await;
    match outcome {
        Ok(outcome) => outcome.map(|()| ExitCode::SUCCESS),
        Err(signal) => {
            match progress.started() {
                Some(build) => note!("interrupted: {}", continues(&build)),
                None => note!("interrupted: nothing was built"),
            }
            Ok(signal.status().into())
        }
    }
}

/// The build, sandboxes and templates that exist if the command is interrupted.
#[derive(Debug, Default)]
struct Progress(std::sync::Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    started: Option<RequestedBuild>,
    sandboxes: Vec<SandboxId>,
    templates: Vec<String>,
}

impl Progress {
    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn started(&self) -> Option<RequestedBuild> {
        self.made().started.clone()
    }
}

/// Removes the sandboxes and templates of stages.
async fn clean_up(client: &Client, progress: &Progress) {
    let made = std::mem::take(&mut *progress.made());
    for sandbox in &made.sandboxes {
        if let Err(error) = client.kill(sandbox).await {
            note!("warning: failed to kill sandbox {sandbox} of a stage: {error}");
        }
    }
    for template in &made.templates {
        if let Err(error) = client.delete_template(template).await {
            note!("warning: failed to delete template {template} of a stage: {error}");
        }
    }
    progress.made().started = made.started;
}

async fn run(client: &Client, args: &BuildArgs, printer: &Printer, progress: &Progress) -> Result<()> {
    let options = &args.options;
    let shipped = args.builtin.map(Builtin::write).transpose()?;
    let directory = shipped.as_ref().map_or(args.directory.as_path(), TempDir::path);
    let project = Project::read(directory)?;
    let name = args.name.as_ref().or(project.template_name.as_ref());
    let name =
        name.context("the template has no name\nhint: pass --name, or set `template_name` in `e2b.toml`")?;
    let name = checked_name(name)?;
    let path = project.dockerfile(directory, options.file.as_deref())?;
    let file = path.display().to_string();
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read `{file}`"))?;
    let located = |error: sandcove_dockerfile::Error| anyhow!(error.located(&file));
    let choices = Options { args: options.args.iter().cloned().collect(), target: options.target.clone() };
    let plan = source::parse(&text).and_then(|parsed| Plan::new(&parsed, &choices)).map_err(located)?;
    for notice in &plan.notices {
        printer.warning(&file, notice.line, &notice.message);
    }
    let ignore = Ignore::of(directory, &path).map_err(located)?;
    let context = Context::new(directory, ignore).map_err(located)?;
    let downloads = tempfile::tempdir().context("failed to create a temporary directory")?;
    let pinned = pinned(client, &plan).await;
    let sources =
        Sources { plan: &plan, file: &file, context: &context, downloads: downloads.path(), pinned: &pinned };
    let mut stages = sources.assemble().await?;
    let Some(mut target) = stages.remove(&plan.target) else { bail!("the Dockerfile has no stage to build") };
    if let Some(cmd) = options.cmd.as_ref().or(project.start_cmd.as_ref()) {
        target.start.start_cmd = Some(cmd.clone());
    }
    target.start.steps.extend(options.interpreter_step());
    target.start.ready_cmd = options.ready.clone().or(project.ready_cmd.clone());
    let builder = Builder {
        client,
        printer,
        progress,
        stages,
        force: options.no_cache,
        secrets: options.secrets.iter().map(SecretOption::read).collect::<Result<_>>()?,
        file,
        scratch: downloads.path(),
        name: name.split(':').next().unwrap_or(&name).rsplit('/').next().unwrap_or(&name).to_owned(),
    };
    let new = NewTemplate {
        name: Some(name),
        tags: Some(options.tags.clone()).filter(|tags| !tags.is_empty()),
        cpu_count: options.cpu.or(project.cpu_count),
        memory_mb: options.memory.or(project.memory_mb),
        min_free_disk_mb: options.disk,
        ..NewTemplate::default()
    };
    let job = Job { start: target.start, files: &target.files, lines: &target.lines, is_target: true };
    let build = builder.build(&new, &job).await?;
    printer.ready(&build);
    Ok(())
}

/// Builds the target, and before it the stages that it copies from.
struct Builder<'b> {
    client: &'b Client,
    printer: &'b Printer,
    progress: &'b Progress,
    /// The other stages, by index.
    stages: BTreeMap<usize, Assembled>,
    force: bool,
    secrets: BTreeMap<String, Secret>,
    file: String,
    /// Directory for archives.
    scratch: &'b Path,
    /// Name of the template, for those of stages.
    name: String,
}

/// A build to run.
struct Job<'j> {
    start: StartBuild,
    files: &'j [(String, Files)],
    lines: &'j Lines,
    is_target: bool,
}

impl Builder<'_> {
    async fn build(&self, new: &NewTemplate, job: &Job<'_>) -> Result<RequestedBuild> {
        let build = self.client.request_build(new).await?;
        if !job.is_target {
            self.progress.made().templates.push(build.template_id.clone());
        }
        self.upload(&build, job.files).await?;
        let mut start = StartBuild { force: Some(self.force), ..job.start.clone() };
        let asked = |id: &String| {
            let mut mounts = start.steps.iter().flat_map(|step| &step.mounts);
            mounts.any(|mount| matches!(mount, StepMount::Secret { id: asked, .. } if asked == id))
        };
        start.secrets = self.secrets.clone().into_iter().filter(|(id, _)| asked(id)).collect();
        start.from_image_registry = start.from_image.as_deref().and_then(registry::login);
        self.client.start_build(&build.template_id, &build.build_id, &start).await?;
        if job.is_target {
            self.progress.made().started = Some(build.clone());
        }
        let end = self
            .client
            .follow_build(&build.template_id, &build.build_id, |entry| self.printer.entry(entry, job.lines))
            .await?;
        if let BuildEnd::Failed(reason) = end {
            let place = reason.step.as_deref().and_then(|step| job.lines.of(step));
            let failure = Failure { message: &reason.message, step: reason.step.as_deref(), place };
            self.printer.failed(&build, &failure);
            bail!(described(&self.file, &failure));
        }
        Ok(build)
    }

    /// Uploads the file sets that the server lacks.
    async fn upload(&self, build: &RequestedBuild, needed: &[(String, Files)]) -> Result<()> {
        let mut sandboxes: Vec<(Origin, Sandbox)> = Vec::new();
        let mut present = 0;
        for (hash, files) in needed {
            let link = self.client.upload_link(&build.template_id, hash).await?;
            if link.present && !(self.force && link.url.is_some()) {
                present += 1;
                continue;
            }
            let archive = match files {
                Files::Here(set) => {
                    let archive = tokio::task::block_in_place(|| set.archive());
                    File::from_std(archive.map_err(|error| anyhow!(error.located(&self.file)))?)
                }
                Files::There(extraction) => {
                    let known = sandboxes.iter().find(|(origin, _)| *origin == extraction.origin);
                    let sandbox = match known {
                        Some((_, sandbox)) => sandbox.clone(),
                        None => {
                            let sandbox = Box::pin(self.sandbox(extraction)).await?;
                            sandboxes.push((extraction.origin.clone(), sandbox.clone()));
                            sandbox
                        }
                    };
                    let archive = extraction.archive(&sandbox, self.scratch).await;
                    archive.map_err(|error| self.located(extraction, &error))?
                }
            };
            let size = archive.metadata().await?.len();
            let source = match files {
                Files::Here(set) => &set.source,
                Files::There(extraction) => &extraction.root,
            };
            self.printer.local(&format!("uploading {source} ({})", size_of(size)));
            // The link may have expired while a stage was built.
            let link = match files {
                Files::Here(_) => link,
                Files::There(_) => self.client.upload_link(&build.template_id, hash).await?,
            };
            self.client.upload(&link, archive).await.context("failed to upload files")?;
        }
        if present > 0 {
            self.printer.local(&format!("{} already on the server", count(present, "file set")));
        }
        Ok(())
    }

    /// Starts a sandbox that files are copied from.
    async fn sandbox(&self, extraction: &Extraction) -> Result<Sandbox> {
        let template = match &extraction.origin {
            Origin::Template(template) => {
                self.printer.local(&format!("starting a sandbox of {template}, which files are copied from"));
                template.clone()
            }
            origin => self.source(origin).await?,
        };
        let new = NewSandbox { template, timeout: STAGE_TIMEOUT, ..NewSandbox::default() };
        let sandbox = self.client.create(&new).await;
        let sandbox = sandbox.map_err(|error| self.located(extraction, &error.into()))?;
        self.progress.made().sandboxes.push(sandbox.id().clone());
        Ok(sandbox)
    }

    fn located(&self, extraction: &Extraction, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{}:{}: {error:#}", self.file, extraction.line)
    }

    /// Builds a stage or image as a template of its own, and returns the id.
    async fn source(&self, origin: &Origin) -> Result<String> {
        let image;
        let (stage, what) = match origin {
            Origin::Stage(index) => {
                let stage = self.stages.get(index).context("the Dockerfile has no such stage")?;
                (stage, format!("stage {index}"))
            }
            Origin::Image(reference) => {
                let start = StartBuild { from_image: Some(reference.clone()), ..StartBuild::default() };
                image = Assembled { start, base_build: None, files: Vec::new(), lines: Lines::default() };
                (&image, reference.clone())
            }
            Origin::Context | Origin::Template(_) => bail!("nothing has to be built to copy from there"),
        };
        self.printer.local(&format!("building {what}, which files are copied from"));
        let digest = digest(&[&stage.definition()]);
        let name: String = self.name.chars().take(90).collect();
        let new =
            NewTemplate { name: Some(format!("{name}-stage-{}", &digest[..12])), ..NewTemplate::default() };
        // A stage is a source of files: nothing is to run in it.
        let start = StartBuild { start_cmd: None, ready_cmd: None, ..stage.start.clone() };
        let job = Job { start, files: &stage.files, lines: &stage.lines, is_target: false };
        Ok(self.build(&new, &job).await?.template_id)
    }
}

/// The error of a build that failed, with the line of its step.
fn described(file: &str, failure: &Failure<'_>) -> String {
    let message = failure.message;
    let error = match (failure.place, failure.step) {
        (Some((line, instruction)), _) => format!("{file}:{line}: {instruction}\n{message}"),
        (None, Some("finalize")) => format!("the template was built but did not become ready: {message}"),
        _ => format!("the build failed: {message}"),
    };
    error + &list_of(message)
}

/// A size with its unit.
pub fn size_of(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1024 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_of_a_missing_template_says_how_to_list_templates() {
        let failure = |message| Failure { message, step: Some("base"), place: Some((1, "FROM x")) };
        assert_eq!(
            described("Dockerfile", &failure("template 'x' not found")),
            "Dockerfile:1: FROM x\ntemplate 'x' not found\nhint: `sandcove template list` shows all"
        );
        assert_eq!(described("Dockerfile", &failure("no space")), "Dockerfile:1: FROM x\nno space");
    }
}
