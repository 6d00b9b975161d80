//! The task of a context. It owns the kernel and decides what happens next.
//!
//! ```text
//!          .-- no kernel <--------- dies, exits --------.
//!          |      ^ start fails                         |
//!  start,  v      |                                     |
//!  execute '--> idle kernel --execute--> running (see `execution`) --done--> idle kernel
//!               restart: a new kernel, in either state; close: the end
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use sandcove_wire::interpreter::ExecutionError;
use sandcove_wire::secret::Secret;
use tokio::sync::mpsc;

use super::execution::{self, Outcome};
use super::identity::Identity;
use super::queue::{Control, Execution};
use super::variables::Variables;
use crate::envs;
use crate::kernel::request::Request;
use crate::kernel::{Kernel, StartError};
use crate::language::Language;
use crate::launch::Launcher;

/// The task of a context, and all that it owns.
pub(super) struct Driver {
    launcher: Arc<Launcher>,
    language: Language,
    directory: PathBuf,
    agent: SocketAddr,
    executions: mpsc::Receiver<Execution>,
    controls: mpsc::Receiver<Control>,
    kernel: Option<Kernel>,
    /// Global variables, read at the first execution and kept until the context is closed, or gets into another sandbox.
    variables: Variables,
    identity: Identity,
}

/// Whether the task goes on.
enum Flow {
    Continue,
    Stop,
}

impl Driver {
    pub(super) fn new(
        launcher: Arc<Launcher>,
        language: Language,
        directory: PathBuf,
        agent: SocketAddr,
        executions: mpsc::Receiver<Execution>,
        controls: mpsc::Receiver<Control>,
    ) -> Self {
        Self {
            launcher,
            language,
            directory,
            agent,
            executions,
            controls,
            kernel: None,
            variables: Variables::default(),
            identity: Identity::default(),
        }
    }

    /// Serves the context until it is closed or its last handle is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let flow = tokio::select! {
                biased;
                control = self.controls.recv() => match control {
                    Some(control) => self.control(control).await,
                    None => Flow::Stop,
                },
                () = death(&mut self.kernel) => {
                    // The next execution starts a new one.
                    self.kernel = None;
                    Flow::Continue
                }
                execution = self.executions.recv() => match execution {
                    Some(execution) => self.execute(execution).await,
                    None => Flow::Stop,
                },
            };
            if matches!(flow, Flow::Stop) {
                break;
            }
        }
        self.executions.close();
        while let Some(waiting) = self.executions.recv().await {
            tokio::spawn(execution::fail(waiting.events, execution::ended_early()));
        }
    }

    async fn control(&mut self, control: Control) -> Flow {
        match control {
            Control::Start(reply) => {
                let _ = reply.send(self.ensure_kernel().await.map(|_| ()));
            }
            Control::Restart(reply) => {
                self.kernel = None;
                let _ = reply.send(self.ensure_kernel().await.map(|_| ()));
            }
            Control::Close(reply) => {
                self.kernel = None;
                let _ = reply.send(());
                return Flow::Stop;
            }
        }
        Flow::Continue
    }

    async fn execute(&mut self, execution: Execution) -> Flow {
        if execution.events.is_closed() {
            return Flow::Continue;
        }
        let Execution { code, variables, token, events } = execution;
        self.notice_identity().await;
        self.learn_variables(token.as_ref()).await;
        if let Err(error) = self.ensure_kernel().await {
            let error = ExecutionError {
                name: "ContextRestarting".to_owned(),
                value: format!("the context could not be started: {error}"),
                traceback: String::new(),
            };
            tokio::spawn(execution::fail(events, error));
            return Flow::Continue;
        }
        let Some(kernel) = &mut self.kernel else { return Flow::Continue };
        kernel.change_variables(self.variables.overrides(&variables)).await;
        match execution::run(kernel, code, events, &mut self.controls).await {
            Outcome::Done => {
                kernel.change_variables(self.variables.restored(&variables)).await;
                Flow::Continue
            }
            Outcome::Died | Outcome::Exited => {
                self.kernel = None;
                Flow::Continue
            }
            Outcome::Control(control) => self.control(control).await,
            Outcome::Abandoned => Flow::Stop,
        }
    }

    /// Forgets what belonged to the sandbox that this memory is from, if it has become that of another one.
    async fn notice_identity(&mut self) {
        if !self.identity.has_changed() {
            return;
        }
        let former = std::mem::take(&mut self.variables);
        if let Some(kernel) = &self.kernel {
            kernel.change_variables(former.removed()).await;
            if self.language == Language::python() {
                kernel.send(Request::Reseed).await;
            }
        }
    }

    /// Reads the global variables from the agent, if that has not worked yet. After a failure this execution has none.
    ///
    /// For this the client's token travels down to here: the agent gives its variables only to requests with the token of
    /// the sandbox. The interpreter does not have that token, but clients send it with every `POST /execute` (contract:
    /// interpreter, section 6).
    async fn learn_variables(&mut self, token: Option<&Secret>) {
        if self.variables.are_known() {
            return;
        }
        match envs::fetch(self.agent, token).await {
            Ok(globals) => {
                self.variables = Variables::new(globals);
                if let Some(kernel) = &self.kernel {
                    kernel.change_variables(self.variables.globals()).await;
                }
            }
            Err(error) => tracing::debug!(%error, "failed to read global variables"),
        }
    }

    async fn ensure_kernel(&mut self) -> Result<(), StartError> {
        if self.kernel.is_some() {
            return Ok(());
        }
        let kernel = self.launcher.start(&self.language, &self.directory).await.inspect_err(|error| {
            tracing::error!(language = %self.language, error = %error, "failed to start a kernel");
        })?;
        kernel.change_variables(self.variables.globals()).await;
        self.kernel = Some(kernel);
        Ok(())
    }
}

/// Waits for an idle kernel to die. Frames that it sends meanwhile belong to no execution and are dropped.
async fn death(kernel: &mut Option<Kernel>) {
    let Some(kernel) = kernel else { return std::future::pending().await };
    while kernel.next().await.is_some() {}
}
