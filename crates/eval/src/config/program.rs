//! Configurations that are programs: JavaScript and TypeScript.

use std::path::Path;
use std::time::Duration;

use super::suite::ConfigError;
use crate::model::Object;
use crate::reading::Env;
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::node::Node;
use crate::script::{EntryPoint, Language, ScriptCall, Workers};

/// The time limit of a program that makes a configuration.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Runs the program of a configuration in `base` and returns what it exports, with references for functions.
///
/// # Errors
/// [`ConfigError::Invalid`] for a program that fails; `findings` then has the reason.
pub async fn read(
    path: &Path,
    base: &Path,
    env: &Object,
    findings: &mut Findings,
) -> Result<Node, ConfigError> {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let workers = Workers::new(base.to_owned(), Env::new(env.clone()), 1);
    let entry = EntryPoint::Configuration { path: whole };
    let call = ScriptCall::new(Language::JavaScript, entry, Vec::new()).within(TIME_LIMIT);
    let at = Position { file: path.into(), line: 1, column: 1 };
    match workers.call(call).await {
        Ok(reply) => Ok(Node::of(reply.value, at)),
        Err(error) => {
            findings.add(Severity::Error, Some(&at), format!("failed to run the configuration: {error}"));
            Err(ConfigError::Invalid)
        }
    }
}
