//! The sandbox of a build: programs run through the agent's public protocol, and files are changed by the agent's own program.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::Path;

use sandcove_client::{CommandEvent, CommandExit, Error as ClientError, Program, Sandbox};
use sandcove_host::Handle;
use sandcove_isolate::{Error as IsolateError, SandboxSpec};
use sandcove_wire::boot::login_shell;
use sandcove_wire::step::{GuestStep, PROGRAM, StepOutcome};
use tokio::io::AsyncRead;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::TaskTracker;

use super::Shared;
use super::failure::Failure;
use super::log::Lines;

/// Lines of a failed step that its error is taken from.
const MAX_ERROR_LINES: usize = 8;

/// Maximum output of a login shell that shows its variables, bytes.
const MAX_LOGIN_OUTPUT: usize = 1 << 20;

/// Outcome of a program that was to run in the sandbox of a build.
pub(super) enum Run {
    /// The program ended.
    Exited(CommandExit),
    /// The agent could not start the program, for this reason.
    NotStarted(String),
}

/// A command line in a login shell.
pub(super) fn shell(line: &str, user: &str) -> Program {
    let [program, arguments @ ..] = login_shell(line);
    Program { program, arguments: arguments.into(), user: Some(user.to_owned()), ..Program::default() }
}

/// A program that root runs in the topmost directory.
pub(super) fn as_root(program: &str, arguments: impl Into<Vec<String>>) -> Program {
    Program {
        program: program.to_owned(),
        arguments: arguments.into(),
        user: Some("root".to_owned()),
        cwd: Some("/".to_owned()),
        ..Program::default()
    }
}

/// A sandbox that is destroyed when it is dropped.
struct Owned {
    handle: Option<Handle>,
    tasks: TaskTracker,
}

/// The sandbox of a build. Dropping it destroys the sandbox.
pub(super) struct Guest {
    owned: Owned,
    handle: Handle,
    client: Sandbox,
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.tasks.spawn(destroy(handle));
        }
    }
}

async fn destroy(handle: Handle) {
    let id = handle.id().clone();
    if let Err(error) = handle.destroy().await {
        tracing::error!(sandbox_id = %id, error = &error as &dyn std::error::Error, "the sandbox of a build was not removed completely");
    }
}

impl Guest {
    /// Starts a sandbox. If the caller stops waiting, the sandbox is destroyed as soon as it has started.
    /// With `log`, the sandbox writes there.
    pub(super) async fn start(
        shared: &Shared,
        spec: SandboxSpec,
        log: Option<File>,
    ) -> Result<Self, IsolateError> {
        let (host, tasks) = (shared.host.clone(), shared.tasks.clone());
        let (sender, receiver) = oneshot::channel();
        // A stop of the server does not wait for this, as ready commands may take minutes. The host side releases what has no owner.
        tokio::spawn(async move {
            let created = match log {
                Some(log) => host.create_logged(spec, log).await,
                None => host.create(spec).await,
            };
            // Dropped, and so destroyed, when nobody waits.
            let _ = sender.send(created.map(|handle| Owned { handle: Some(handle), tasks }));
        });
        let gone = || IsolateError::Kernel {
            action: "start a sandbox".into(),
            source: std::io::ErrorKind::Interrupted.into(),
        };
        let owned = receiver.await.map_err(|_| gone())??;
        let handle = owned.handle.clone().ok_or_else(gone)?;
        let connections = handle.clone();
        let client = Sandbox::over(handle.id().clone(), move |port| {
            let handle = connections.clone();
            async move { handle.connect(port).await }
        });
        Ok(Self { owned, handle, client })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Destroys the sandbox, and returns when its processes have ended.
    pub(super) async fn end(mut self) {
        if let Some(handle) = self.owned.handle.take() {
            destroy(handle).await;
        }
    }

    /// Runs a program to its end and passes its output on by lines, each with the name of its stream.
    pub(super) async fn run(
        &self,
        program: &Program,
        on_line: &mut (dyn FnMut(&'static str, String) + Send),
    ) -> Result<Run, Failure> {
        let (mut stdout, mut stderr) = (Lines::default(), Lines::default());
        let ran = self.client.run_program(program, |event| match event {
            CommandEvent::Stdout(bytes) => stdout.push(&bytes, |line| on_line("stdout", line)),
            CommandEvent::Stderr(bytes) => stderr.push(&bytes, |line| on_line("stderr", line)),
        });
        let ran = tokio::select! {
            ran = ran => ran,
            _ = self.handle.wait() => return Err(ended()),
        };
        stdout.finish(|line| on_line("stdout", line));
        stderr.finish(|line| on_line("stderr", line));
        match ran {
            Ok(exit) => Ok(Run::Exited(exit)),
            Err(ClientError::Rpc { message, .. } | ClientError::Refused { message, .. }) => {
                Ok(Run::NotStarted(message))
            }
            Err(error) => Err(self.broken(error).await),
        }
    }

    /// Runs a step of the agent's own program.
    pub(super) async fn step(&self, step: &GuestStep) -> Result<StepOutcome, Failure> {
        let program = as_root(PROGRAM, step.arguments().map_err(Failure::internal)?);
        let (mut outcome, mut errors) = (String::new(), VecDeque::new());
        let mut note = |stream: &'static str, line: String| match stream {
            "stdout" => outcome = line,
            _ => {
                if errors.len() == MAX_ERROR_LINES {
                    errors.pop_front();
                }
                errors.push_back(line);
            }
        };
        let text = match self.run(&program, &mut note).await? {
            Run::Exited(exit) if exit.code == 0 => {
                return serde_json::from_str(&outcome).map_err(Failure::internal);
            }
            Run::Exited(exit) if errors.is_empty() => exit.status,
            Run::Exited(_) => Vec::from(errors).join("\n"),
            Run::NotStarted(why) => why,
        };
        Err(Failure::new(text))
    }

    /// Writes a file of the server into the sandbox, as root.
    pub(super) async fn upload(&self, local: &Path, path: &str) -> Result<(), Failure> {
        let file = tokio::fs::File::open(local).await.map_err(Failure::internal)?;
        let size = file.metadata().await.map_err(Failure::internal)?.len();
        self.write(file, size, path).await
    }

    /// Writes a file with this content into the sandbox, as root.
    pub(super) async fn send(&self, content: Vec<u8>, path: &str) -> Result<(), Failure> {
        let size = content.len() as u64;
        self.write(std::io::Cursor::new(content), size, path).await
    }

    async fn write(
        &self,
        content: impl AsyncRead + Send + Unpin + 'static,
        size: u64,
        path: &str,
    ) -> Result<(), Failure> {
        let sent = self.client.upload(path, Some("root"), content, Some(size));
        let sent = tokio::select! {
            sent = sent => sent,
            _ = self.handle.wait() => return Err(ended()),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(ClientError::Refused { message, status: 507, .. }) => {
                Err(Failure::new(format!("the files do not fit on the disk of the build: {message}")))
            }
            Err(error) => Err(self.broken(error).await),
        }
    }

    /// The variables of a login shell of root; none when the image has no shell.
    pub(super) async fn login_environment(&self) -> Result<BTreeMap<String, String>, Failure> {
        let program = Program { cwd: Some("/".to_owned()), ..shell("cat /proc/self/environ", "root") };
        let mut text = String::new();
        let is_too_much = Notify::new();
        let mut note = |stream: &'static str, line: String| match stream {
            "stdout" if text.len() > MAX_LOGIN_OUTPUT => is_too_much.notify_one(),
            "stdout" => {
                text.push_str(&line);
                text.push('\n');
            }
            _ => {}
        };
        let ran = tokio::select! {
            ran = self.run(&program, &mut note) => Some(ran?),
            () = is_too_much.notified() => None,
        };
        match ran {
            Some(Run::NotStarted(_)) => return Ok(BTreeMap::new()),
            Some(Run::Exited(_)) if text.len() <= MAX_LOGIN_OUTPUT => {}
            _ => {
                return Err(Failure::new(format!(
                    "the login shell of root writes more than {} KiB: let /etc/profile and the files it reads write nothing",
                    MAX_LOGIN_OUTPUT >> 10
                )));
            }
        }
        let variables = text.split('\0').filter_map(|variable| variable.split_once('='));
        Ok(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The failure of a connection that broke.
    async fn broken(&self, error: ClientError) -> Failure {
        use futures_util::FutureExt;
        match self.handle.wait().now_or_never() {
            Some(_) => ended(),
            None => Failure::internal(error),
        }
    }
}

fn ended() -> Failure {
    Failure::new("the sandbox of the build ended, maybe because it had too little memory")
}
