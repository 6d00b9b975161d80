//! The semantics of steps (contract: templates, section 9).

use std::collections::BTreeMap;

use sandcove_client::{CommandExit, Program};
use sandcove_wire::step::GuestStep;
use uuid::Uuid;

use super::engine::{Engine, Phase, State, Work};
use super::failure::Failure;
use super::guest::{Run, shell};
use super::steps::Step;
use super::{provision, variables};
use crate::domain::build::LogLevel;
use crate::domain::context::Context;

/// Directories that are searched for programs after those of the context.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Engine<'_> {
    /// Executes a phase and changes the context. Returns whether files may have changed.
    pub(super) async fn execute(&mut self, phase: &Phase, state: &mut State) -> Result<bool, Failure> {
        match &phase.work {
            Work::Provision => {
                let (log, context) = (self.job.log, state.context.clone());
                let guest = self.guest(state).await?;
                provision::run(guest, log, &context).await?;
                let account = GuestStep::Account { name: Context::DEFAULT_USER.to_owned(), sudo: true };
                guest.step(&account).await?;
                state.context = Context { env: context.env, ..Context::of_user(Context::DEFAULT_USER) };
                Ok(true)
            }
            Work::Interpreter => self.set_up_interpreter(state).await,
            Work::Step(Step::Env(pairs)) => {
                self.set_variables(pairs, state).await?;
                Ok(false)
            }
            Work::Step(Step::WorkDirectory(path)) => {
                let step = GuestStep::WorkDirectory {
                    path: path.clone(),
                    current: state.context.workdir.clone(),
                    user: state.context.user.clone(),
                };
                let made = self.guest(state).await?.step(&step).await?.path;
                state.context.workdir = Some(made.unwrap_or_else(|| path.clone()));
                Ok(true)
            }
            Work::Step(Step::User { name, sudo }) => {
                // A group, as in Dockerfiles, changes nothing: processes have that of their user.
                let name = name.split(':').next().unwrap_or(name);
                let step = GuestStep::Account { name: name.to_owned(), sudo: *sudo };
                self.guest(state).await?.step(&step).await?;
                state.context.user = name.to_owned();
                Ok(true)
            }
            Work::Step(Step::Run { command, user, mounts }) => {
                let user = user.as_deref().unwrap_or(&state.context.user).to_owned();
                let mounted = self.mount(mounts, state).await?;
                let program = Program {
                    cwd: state.context.workdir.clone(),
                    envs: environment(&state.context.env)
                        .into_iter()
                        .chain(mounted.variables.clone())
                        .collect(),
                    ..shell(&line(command, &state.context.env), &user)
                };
                let (log, prefix) = (self.job.log, phase.prefix.as_str());
                let guest = self.guest(state).await?;
                let step = Some(phase.step.as_str());
                let mut note = |stream: &'static str, text: String| {
                    log.output(
                        LogLevel::Info,
                        step,
                        format!("[{prefix}] [{stream}]: {}", mounted.shown(text)),
                    );
                };
                let ran = guest.run(&program, &mut note).await?;
                let failed = |why: &str| Failure::new(format!("failed to run command '{command}': {why}"));
                match ran {
                    Run::Exited(CommandExit { code: 0, .. }) => {
                        self.unmount(mounted, state).await?;
                        Ok(true)
                    }
                    Run::Exited(exit) => Err(failed(&exit.status)),
                    Run::NotStarted(why) => Err(failed(&why)),
                }
            }
            Work::Step(Step::Copy { files, source, destination, owner, mode }) => {
                let team = self.job.order.team.id;
                let Some(local) = self.shared.file_sets.find(team, files).await else {
                    return Err(Failure::new(format!(
                        "the files of '{source}' were not uploaded: upload them again"
                    )));
                };
                let archive = format!("/.sandcove-{}", Uuid::new_v4().simple());
                let context = state.context.clone();
                let guest = self.guest(state).await?;
                guest.upload(&local, &archive).await?;
                let step = GuestStep::Copy {
                    archive,
                    source: source.clone(),
                    destination: destination.clone(),
                    workdir: context.workdir,
                    user: context.user,
                    owner: owner.clone(),
                    mode: mode.clone(),
                };
                if let Err(failure) = guest.step(&step).await {
                    // The next build uploads it anew, in case it is the archive that is broken.
                    self.shared.file_sets.discard(team, files).await;
                    return Err(failure);
                }
                Ok(true)
            }
        }
    }

    async fn set_variables(&mut self, pairs: &[(String, String)], state: &mut State) -> Result<(), Failure> {
        let is_known = |name: &&str| state.context.env.contains_key(*name);
        let login = match pairs.iter().all(|(_, value)| variables::names(value).iter().all(is_known)) {
            true => BTreeMap::new(),
            false => self.guest(state).await?.login_environment().await?,
        };
        Ok(variables::set(&mut state.context.env, pairs, &login)?)
    }
}

/// The variables of a process of a build.
pub(super) fn environment(context: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut environment = context.clone();
    if let Some(path) = environment.get_mut("PATH") {
        path.push(':');
        path.push_str(USUAL_PATH);
    }
    environment
}

/// The command line for a login shell. Profiles set `PATH` anew, so that the directories of the context are put in front again.
pub(super) fn line(command: &str, context: &BTreeMap<String, String>) -> String {
    match context.get("PATH") {
        Some(path) => format!("export PATH={}\":$PATH\"; {command}", quoted(path)),
        None => command.to_owned(),
    }
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_context_come_before_those_of_the_profile() {
        let context = BTreeMap::from([("PATH".to_owned(), "/opt/it's/bin".to_owned())]);
        assert_eq!(line("go build", &context), r#"export PATH='/opt/it'\''s/bin'":$PATH"; go build"#);
        assert_eq!(environment(&context)["PATH"], format!("/opt/it's/bin:{USUAL_PATH}"));
        assert_eq!(line("go build", &BTreeMap::new()), "go build");
        assert!(environment(&BTreeMap::new()).is_empty());
    }
}
