//! The service `process.Process`: programs of clients and their output (contract: envd, section 2).
//!
//! `service` has the RPCs, `running` one process, `output` its log and subscribers, `table` all processes.

mod ending;
mod endpoint;
pub mod output;
mod running;
mod service;
mod sys;
pub mod table;

use std::sync::Arc;

pub use self::service::register;

use sandcove_wire::envd::process::ProcessConfig;
use tokio::sync::oneshot;

use self::output::Subscription;
use self::running::{Input, Plan, Process, Streams};
use self::table::Table;
use crate::spawn::{Children, Exit, Launch, SpawnError};

/// The process service.
#[derive(Debug, Clone)]
pub struct Processes {
    children: Arc<Children>,
    table: Arc<Table<Process>>,
}

impl Processes {
    /// Makes a service that starts its processes through `children`. Must be called within a runtime.
    pub fn new(children: Arc<Children>) -> Self {
        let table: Arc<Table<Process>> = Arc::default();
        let ends = Arc::downgrade(&table);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(table::RETENTION);
            loop {
                tick.tick().await;
                // Starts and look-ups drop old ends too; this is for a sandbox where neither happens any more.
                match ends.upgrade() {
                    Some(table) => table.expire(),
                    None => return,
                }
            }
        });
        Self { children, table }
    }

    /// Starts a program of the template, without input. Clients find it in the list of processes like their own. The receiver gets
    /// how it exits, which may be long before its output ends.
    pub async fn start_template_program(
        &self,
        launch: Launch,
        config: ProcessConfig,
        uid: u32,
    ) -> Result<(Subscription, oneshot::Receiver<Exit>), SpawnError> {
        let streams = Streams::Pipes { input: Input::Closed };
        let (on_exit, exit) = oneshot::channel();
        let plan = Plan {
            launch,
            streams,
            uid,
            config,
            tag: None,
            deadline: None,
            ends_together: false,
            on_exit: Some(on_exit),
        };
        let (_, subscription) = Process::start(plan, &self.children, &self.table).await?;
        Ok((subscription, exit))
    }
}
