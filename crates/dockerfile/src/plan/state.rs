//! What is known of a stage while its instructions are evaluated.

use super::scope::Scope;
use super::start::Start;
use super::{Stage, Step, StepKind};

/// A stage that is being evaluated.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub stage: Stage,
    pub scope: Scope,
    pub shell: Vec<String>,
    pub workdir: String,
    /// Directories that exist because the Dockerfile has worked in them.
    pub directories: Vec<String>,
    pub user: String,
    pub has_user: bool,
    pub has_workdir: bool,
    pub start: Start,
}

impl State {
    /// The stage, with the defaults of sandboxes for what it has not set.
    pub(super) fn finish(mut self) -> Stage {
        let step = |kind, text: &str| Step { line: 0, text: text.to_owned(), kind, mounts: Vec::new() };
        if !self.has_user {
            self.stage.steps.push(step(StepKind::User("user".into()), "USER user"));
        }
        if !self.has_workdir {
            self.stage.steps.push(step(StepKind::Workdir("/home/user".into()), "WORKDIR /home/user"));
        }
        self.stage.start = self.start.command();
        self.stage
    }
}

/// Whether every Linux system has this directory.
pub(super) fn is_system(path: &str) -> bool {
    matches!(
        path,
        "/bin"
            | "/etc"
            | "/home"
            | "/home/user"
            | "/lib"
            | "/mnt"
            | "/opt"
            | "/root"
            | "/sbin"
            | "/srv"
            | "/tmp"
            | "/usr"
            | "/usr/bin"
            | "/usr/lib"
            | "/usr/local"
            | "/usr/local/bin"
            | "/usr/sbin"
            | "/usr/share"
            | "/var"
            | "/var/lib"
            | "/var/log"
    )
}

/// The reason why an instruction has no effect.
pub(super) fn ignored(name: &str) -> String {
    let reason = match name {
        "EXPOSE" => "every port of a sandbox can be reached",
        "VOLUME" => "the directory is part of the template; mount volumes when you create sandboxes",
        "HEALTHCHECK" => "pass --ready to say when the template is ready",
        "STOPSIGNAL" => "sandboxes are paused or killed",
        "ONBUILD" => "templates run no triggers of their base",
        _ => "templates have no such metadata",
    };
    format!("{name} has no effect: {reason}")
}
