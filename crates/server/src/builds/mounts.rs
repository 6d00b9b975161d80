//! Mounts of `RUN` steps: uploaded files and secrets that one command sees, and that are in no snapshot, no key and no log.

use std::collections::BTreeMap;

use sandcove_wire::api::build::StepMount;
use sandcove_wire::step::{GuestStep, StepOutcome};
use uuid::Uuid;

use super::engine::{Engine, State};
use super::failure::Failure;

/// Shortest line of a secret that is hidden in output: shorter ones are in ordinary words.
const MIN_HIDDEN: usize = 4;
/// Maximum number of different lines of secrets that a command has: each is searched for in each line of output.
const MAX_HIDDEN: usize = 1000;

/// The mounts of a command.
#[derive(Default)]
pub(super) struct Mounted {
    /// Steps that undo them.
    undo: Vec<GuestStep>,
    /// Variables with secrets.
    pub(super) variables: BTreeMap<String, String>,
    /// Texts that output must not show.
    hidden: Vec<String>,
}

impl Mounted {
    /// A line of output, without secrets.
    pub(super) fn shown(&self, line: String) -> String {
        self.hidden.iter().fold(line, |line, secret| match line.contains(secret.as_str()) {
            true => line.replace(secret.as_str(), "***"),
            false => line,
        })
    }

    fn hide(&mut self, id: &str, secret: &[u8]) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(secret);
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= MIN_HIDDEN);
        self.hidden.extend(lines.map(str::to_owned));
        // Longer ones first, as a line may be within another.
        self.hidden.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.hidden.dedup();
        if self.hidden.len() > MAX_HIDDEN {
            return Err(Failure::new(format!(
                "with '{id}', the secrets of a command have more than {MAX_HIDDEN} different lines, the maximum that its output can hide: use shorter secrets"
            )));
        }
        Ok(())
    }
}

impl Engine<'_> {
    /// Puts everything to its place.
    pub(super) async fn mount(&mut self, mounts: &[StepMount], state: &State) -> Result<Mounted, Failure> {
        let mut mounted = Mounted::default();
        for mount in mounts {
            let undo = match mount {
                StepMount::Bind { target, source, files_hash } => {
                    Some(self.bind(target, source, files_hash, state).await?)
                }
                StepMount::Secret { .. } => self.secret(mount, state, &mut mounted).await?,
            };
            // The last one first, as one may be below another.
            mounted.undo.splice(0..0, undo);
        }
        Ok(mounted)
    }

    async fn bind(
        &mut self,
        target: &str,
        source: &str,
        files: &str,
        state: &State,
    ) -> Result<GuestStep, Failure> {
        let team = self.job.order.team.id;
        let Some(local) = self.shared.file_sets.find(team, files).await else {
            return Err(Failure::new(format!(
                "the files of '{source}' were not uploaded: upload them again"
            )));
        };
        let archive = format!("/.sandcove-{}", Uuid::new_v4().simple());
        let guest = self.guest(state).await?;
        guest.upload(&local, &archive).await?;
        let step = GuestStep::Mount {
            archive,
            source: Some(source.to_owned()),
            target: target.to_owned(),
            owner: Some("root:root".to_owned()),
            mode: None,
        };
        undo(guest.step(&step).await?).ok_or_else(|| Failure::internal("a mount without a path"))
    }

    async fn secret(
        &mut self,
        mount: &StepMount,
        state: &State,
        mounted: &mut Mounted,
    ) -> Result<Option<GuestStep>, Failure> {
        let StepMount::Secret { id, target, env, owner, mode, required } = mount else { return Ok(None) };
        let Some(secret) = self.job.order.secrets.get(id) else {
            return match (required, self.job.order.is_resumed) {
                (false, false) => Ok(None),
                // Without it, the result could be another one.
                (_, true) => Err(Failure::new(format!(
                    "the server was restarted, and secrets such as '{id}' are never stored: build again"
                ))),
                (true, false) => Err(Failure::new(format!("the build has no secret '{id}'"))),
            };
        };
        mounted.hide(id, secret)?;
        if let Some(name) = env {
            mounted.variables.insert(name.clone(), String::from_utf8_lossy(secret).into_owned());
        }
        let Some(target) = target else { return Ok(None) };
        // In memory, until it is at its target.
        let archive = format!("/dev/shm/.sandcove-{}", Uuid::new_v4().simple());
        let guest = self.guest(state).await?;
        guest.send(secret.clone(), &archive).await?;
        let step = GuestStep::Mount {
            archive,
            source: None,
            target: target.clone(),
            owner: Some(owner.clone().unwrap_or_else(|| "root:root".to_owned())),
            mode: mode.clone(),
        };
        Ok(undo(guest.step(&step).await?))
    }

    /// Removes everything again.
    pub(super) async fn unmount(&mut self, mounted: Mounted, state: &State) -> Result<(), Failure> {
        for step in mounted.undo {
            self.guest(state).await?.step(&step).await?;
        }
        Ok(())
    }
}

/// The step that undoes a mount, by its outcome.
fn undo(StepOutcome { path, aside }: StepOutcome) -> Option<GuestStep> {
    path.map(|path| GuestStep::Unmount { path, aside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_in_output() {
        let mut mounted = Mounted::default();
        mounted.hide("a", b"hunter2-long\nab\n  second-line  \nhunter2").unwrap();
        assert_eq!(mounted.shown("x hunter2-long=second-line ab hunter2.".to_owned()), "x ***=*** ab ***.");
    }

    #[test]
    fn lines_of_secrets_are_limited_and_counted_once() {
        let mut mounted = Mounted::default();
        let lines = |count: usize| (0..count).map(|line| format!("line {line}\n")).collect::<String>();
        mounted.hide("a", lines(MAX_HIDDEN).as_bytes()).unwrap();
        mounted.hide("b", lines(MAX_HIDDEN).as_bytes()).unwrap();
        let refused = mounted.hide("c", b"one more").unwrap_err().reason(Uuid::nil());
        assert!(refused.message.starts_with("with 'c', the secrets of a command have more than 1000"));
    }
}
