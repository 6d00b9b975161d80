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
use tokio::sync::mpsc;

use super::execution::{self, Outcome};
use super::variables::Variables;
use super::{Control, Execution};
use crate::envs;
use crate::kernel::{Activity, Kernel, StartError};
use crate::language::Language;
use crate::launch::Launcher;

/// See the module.
pub(super) struct Driver {
    launcher: Arc<Launcher>,
    language: Language,
    directory: PathBuf,
    agent: SocketAddr,
    executions: mpsc::UnboundedReceiver<Execution>,
    controls: mpsc::UnboundedReceiver<Control>,
    kernel: Option<Kernel>,
    /// Read at the first execution, for the life of the context.
    variables: Variables,
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
        executions: mpsc::UnboundedReceiver<Execution>,
        controls: mpsc::UnboundedReceiver<Control>,
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
        }
    }

    /// Serves the context until it is closed or nobody holds it any more.
    pub(super) async fn run(mut self) {
        loop {
            let flow = tokio::select! {
                biased;
                control = self.controls.recv() => match control {
                    Some(control) => self.control(control).await,
                    None => Flow::Stop,
                },
                () = death(&mut self.kernel) => {
                    // The next execution takes a new one.
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
        self.learn_variables(&execution).await;
        if let Err(error) = self.ensure_kernel().await {
            let error = ExecutionError {
                name: "ContextRestarting".to_owned(),
                value: format!("the context could not be started: {error}"),
                traceback: String::new(),
            };
            tokio::spawn(execution::fail(execution.events, error));
            return Flow::Continue;
        }
        let Some(kernel) = &mut self.kernel else { return Flow::Continue };
        self.variables.override_with(&execution.variables, kernel);
        match execution::run(kernel, &execution.code, execution.events, &mut self.controls).await {
            Outcome::Done => {
                self.variables.restore(&execution.variables, kernel);
                Flow::Continue
            }
            Outcome::Died | Outcome::Left => {
                self.kernel = None;
                Flow::Continue
            }
            Outcome::Control(control) => self.control(control).await,
            Outcome::Abandoned => Flow::Stop,
        }
    }

    /// Reads the global variables if that has not worked yet. A failure counts as there being none, this time.
    async fn learn_variables(&mut self, execution: &Execution) {
        if self.variables.known() {
            return;
        }
        match envs::fetch(self.agent, execution.token.as_ref()).await {
            Ok(globals) => {
                self.variables = Variables::new(globals);
                if let Some(kernel) = &self.kernel {
                    self.variables.install(kernel);
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
        self.variables.install(&kernel);
        self.kernel = Some(kernel);
        Ok(())
    }
}

/// Waits for an idle kernel to die; what it says meanwhile belongs to no execution.
async fn death(kernel: &mut Option<Kernel>) {
    let Some(kernel) = kernel else { return std::future::pending().await };
    while !matches!(kernel.next().await, Activity::Gone) {}
}
