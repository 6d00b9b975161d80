//! A context: one queue of executions, one kernel at a time, one task that owns both.

mod driver;
mod execution;
mod output;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sandcove_wire::interpreter::{self as wire, Event};
use sandcove_wire::secret::Secret;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::config::Config;
use crate::kernel::StartError;
use crate::language::Language;
use crate::launch::Launcher;
use driver::Driver;

/// Lines of an execution that may wait for the client. Beyond that the code waits.
const QUEUED_LINES: usize = 64;

/// The handle of a context. Its task ends when it is closed or the last handle is gone.
#[derive(Debug)]
pub struct Context {
    id: String,
    language: Language,
    directory: PathBuf,
    executions: mpsc::UnboundedSender<Execution>,
    controls: mpsc::UnboundedSender<Control>,
}

/// One request to run code.
#[derive(Debug)]
struct Execution {
    code: String,
    variables: BTreeMap<String, String>,
    /// Goes to the agent when the global variables are still to be read.
    token: Option<Secret>,
    events: mpsc::Sender<Event>,
}

/// What does not wait in the queue of executions.
#[derive(Debug)]
enum Control {
    /// Makes sure there is a kernel.
    Start(oneshot::Sender<Result<(), StartError>>),
    /// Ends the running execution and takes a new kernel.
    Restart(oneshot::Sender<Result<(), StartError>>),
    /// Ends all executions and the kernel.
    Close(oneshot::Sender<()>),
}

/// The context is closed, or being so.
#[derive(Debug, thiserror::Error)]
#[error("context is closed")]
pub struct Closed;

impl Context {
    /// A new context without a kernel; that is started by [`Context::start`] or by the first execution.
    pub fn new(language: Language, directory: PathBuf, launcher: Arc<Launcher>, config: &Config) -> Self {
        let (executions, execution_queue) = mpsc::unbounded_channel();
        let (controls, control_queue) = mpsc::unbounded_channel();
        let id = Uuid::new_v4().to_string();
        let driver = Driver::new(
            launcher,
            language.clone(),
            directory.clone(),
            config.agent,
            execution_queue,
            control_queue,
        );
        tokio::spawn(driver.run());
        Self { id, language, directory, executions, controls }
    }

    /// What identifies it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its language.
    pub fn language(&self) -> &Language {
        &self.language
    }

    /// What clients see of it.
    pub fn view(&self) -> wire::Context {
        wire::Context {
            id: self.id.clone(),
            language: self.language.to_string(),
            cwd: self.directory.to_string_lossy().into_owned(),
        }
    }

    /// Queues code and returns the events of its execution. Dropping them interrupts it.
    pub fn execute(
        &self,
        code: String,
        variables: BTreeMap<String, String>,
        token: Option<Secret>,
    ) -> Result<mpsc::Receiver<Event>, Closed> {
        let (events, receiver) = mpsc::channel(QUEUED_LINES);
        let execution = Execution { code, variables, token, events };
        self.executions.send(execution).map_err(|_| Closed)?;
        Ok(receiver)
    }

    /// Makes sure there is a kernel.
    pub async fn start(&self) -> Result<Result<(), StartError>, Closed> {
        self.control(Control::Start).await
    }

    /// Replaces the kernel by a new one. A running execution ends with an error.
    pub async fn restart(&self) -> Result<Result<(), StartError>, Closed> {
        self.control(Control::Restart).await
    }

    /// Ends the kernel and all executions, and waits until that is done.
    pub async fn close(&self) -> Result<(), Closed> {
        self.control(Control::Close).await
    }

    async fn control<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Control) -> Result<T, Closed> {
        let (reply, answer) = oneshot::channel();
        self.controls.send(make(reply)).map_err(|_| Closed)?;
        answer.await.map_err(|_| Closed)
    }
}
