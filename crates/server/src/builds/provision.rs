//! Preparation of an image for sandboxes (contract: templates, section 9.1). Images of known distributions get the programs that
//! clients rely on, such as `sudo`, `curl` and `ss`. An image without a package manager, or without a connection to its packages,
//! is used as it is.

use sandcove_client::Program;

use super::engine::BASE;
use super::execute::{environment, line};
use super::failure::Failure;
use super::guest::{Guest, Run, as_root};
use super::log::BuildLog;
use crate::domain::build::LogLevel;
use crate::domain::context::Context;

/// Version of the preparation: another one is done again.
pub(super) const VERSION: &str = "2";

/// Lines of output that the log has of a failed preparation.
const MAX_LINES: usize = 30;

/// The script, for any POSIX shell.
const SCRIPT: &str = include_str!("provision.sh");

/// Prepares the files of the sandbox. Failures of the package manager are warnings.
pub(super) async fn run(guest: &Guest, log: &BuildLog, context: &Context) -> Result<(), Failure> {
    let step = Some(BASE);
    log.write(LogLevel::Info, step, "[base] Provisioning sandbox template");
    let script = ["-c".to_owned(), line(SCRIPT, &context.env)];
    let program = Program { envs: environment(&context.env), ..as_root("/bin/sh", script) };
    let mut last = std::collections::VecDeque::new();
    let mut note = |stream: &'static str, text: String| {
        if last.len() == MAX_LINES {
            last.pop_front();
        }
        last.push_back(text.clone());
        log.output(LogLevel::Debug, step, format!("[base] [{stream}]: {text}"));
    };
    match guest.run(&program, &mut note).await? {
        Run::Exited(exit) if exit.code == 0 => {
            log.write(LogLevel::Info, step, "[base] Provisioning was successful");
        }
        Run::Exited(exit) if exit.code == 127 && last.is_empty() => {
            log.write(LogLevel::Info, step, "[base] The image has no shell: it is used as it is");
        }
        Run::Exited(exit) => {
            let text = format!(
                "[base] Provisioning failed ({}): programs that clients rely on may be missing, such as sudo, curl and ss",
                exit.status
            );
            log.write(LogLevel::Warn, step, text);
            for line in last {
                log.output(LogLevel::Warn, step, format!("[base] {line}"));
            }
        }
        Run::NotStarted(_) => {
            log.write(LogLevel::Info, step, "[base] The image has no shell: it is used as it is");
        }
    }
    Ok(())
}
