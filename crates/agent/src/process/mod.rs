//! `process.Process`: clients' programs and what they write (contract: envd, section 2).
//!
//! `service` is the RPCs; `running` one process; `output` its log and subscribers; `table` who is there.

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
    /// A service without processes that starts its own through `children`. Must be called within a runtime.
    pub fn new(children: Arc<Children>) -> Self {
        let table: Arc<Table<Process>> = Arc::default();
        let ends = Arc::downgrade(&table);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(table::RETENTION);
            loop {
                tick.tick().await;
                // Starts and look-ups forget old ends too; this is for a sandbox where neither happens any more.
                match ends.upgrade() {
                    Some(table) => table.expire(),
                    None => return,
                }
            }
        });
        Self { children, table }
    }
}
