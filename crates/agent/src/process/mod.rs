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

use self::running::Process;
use self::table::Table;
use crate::spawn::Children;

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
}
