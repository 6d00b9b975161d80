//! Code that models write: taking it out of answers, checking it, and running it in sandboxes.

use crate::assertion::Grader;
use crate::model::Object;

/// The assertion types about code.
pub const GRADERS: &[(&str, Grader)] = &[];

/// Sandboxes shared by the rows of a run; the first is made on first use.
#[derive(Debug, Default)]
pub struct Sandboxes {}

impl Sandboxes {
    /// At most `concurrency` sandboxes, of the server that `env` or the process's variables name.
    pub fn new(env: Object, concurrency: usize) -> Self {
        let _ = (env, concurrency);
        Self {}
    }
}
