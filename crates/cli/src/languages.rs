//! The layer with R, Java and Ruby, which is built while the server serves. `languages.json` holds the state of the build.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sandcove_host::Host;
use sandcove_image::{Builder, ChrootRunner, Event, LayerStore, Sources, Template};
use sandcove_server::App;
use sandcove_server::domain::template::TemplateRecord;
use serde::{Deserialize, Serialize};

/// How long new sandboxes do without the languages until the pool has sandboxes with them.
const WARM_DEADLINE: Duration = Duration::from_secs(60);
/// How often the pool is checked.
const POLL: Duration = Duration::from_millis(100);

/// State of the layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum LanguageState {
    /// The operator has switched the languages off.
    Off,
    /// The layer is being built.
    Building,
    /// New sandboxes have the languages.
    Ready,
    /// The build failed; the next start tries again.
    Failed {
        /// The reason, in a line or two.
        reason: String,
    },
}

impl LanguageState {
    fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("languages.json")
    }

    /// Reads the state; `None` before the first start of a server.
    pub fn read(data_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(data_dir)).ok()?).ok()
    }

    /// Replaces the state atomically. The server does not depend on the file, so that a failure is only logged.
    pub fn write(&self, data_dir: &Path) {
        let unfinished = data_dir.join(".languages.json");
        let written = serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&unfinished, text))
            .and_then(|()| std::fs::rename(&unfinished, Self::path(data_dir)));
        if let Err(error) = written {
            tracing::warn!(%error, "failed to write the state of the language layer");
        }
    }

    /// The state as a phrase, for `status` and `doctor`.
    pub fn describe(&self, server_runs: bool) -> String {
        match self {
            Self::Off => "R, Java and Ruby are off (`--languages lean`)".to_owned(),
            Self::Building if server_runs => {
                "R, Java and Ruby are being built; sandboxes created afterwards have them".to_owned()
            }
            Self::Building => {
                "R, Java and Ruby were being built when the server stopped; the next start continues"
                    .to_owned()
            }
            Self::Ready => "R, Java and Ruby are ready".to_owned(),
            Self::Failed { reason } => {
                format!("failed to build R, Java and Ruby; the next start tries again: {reason}")
            }
        }
    }
}

/// A change of the default template, which the server makes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Switch {
    /// The template without the layer, as new sandboxes get it now.
    pub lean: TemplateRecord,
    /// The template with the layer.
    pub full: TemplateRecord,
}

/// The layer to build, and the template to switch to.
#[derive(Debug)]
pub struct Upgrade {
    /// The template with the layer.
    pub full: Template,
    /// The change once the layer is built.
    pub switch: Switch,
    /// The store of layers.
    pub store: LayerStore,
    /// The sources of a build.
    pub sources: Sources,
    /// The data directory, for the state.
    pub data_dir: PathBuf,
}

impl Upgrade {
    /// Builds the layer and has `make` switch to the template that has it. A failure is logged and has no other effect.
    pub async fn run<F: Future<Output = Result<()>>>(self, make: impl FnOnce(Switch) -> F) {
        let data_dir = self.data_dir.clone();
        let state = match self.build_and_switch(make).await {
            Ok(()) => LanguageState::Ready,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "failed to build R, Java and Ruby; the next start tries again"
                );
                LanguageState::Failed { reason: brief(&format!("{error:#}")) }
            }
        };
        state.write(&data_dir);
    }

    async fn build_and_switch<F: Future<Output = Result<()>>>(
        self,
        make: impl FnOnce(Switch) -> F,
    ) -> Result<()> {
        let builder = Builder::new(self.store, ChrootRunner::in_the_background(), self.sources);
        let mut log = |event: Event<'_>| match event {
            Event::Building(layer) => tracing::info!(%layer, "building in the background"),
            Event::Output(line) => tracing::debug!(line, "template build"),
            Event::Ready(layer, took) => tracing::info!(%layer, seconds = took.as_secs(), "built"),
        };
        builder.ensure(std::slice::from_ref(&self.full), &mut log).await?;
        make(self.switch).await
    }
}

impl Switch {
    /// Makes the template with the layer the default one. New sandboxes use the old one until the pool has sandboxes of the new one.
    pub async fn make(self, app: &App, host: &Host) -> Result<()> {
        let (old, new) = (self.lean.blueprint(), self.full.blueprint());
        host.keep_ready(new.clone());
        let ready = async {
            while !host.is_ready(&new).await.unwrap_or(false) {
                tokio::time::sleep(POLL).await;
            }
        };
        if tokio::time::timeout(WARM_DEADLINE, ready).await.is_err() {
            tracing::warn!("the first sandboxes with R, Java and Ruby start slowly: the pool has none yet");
        }
        app.templates().upsert_builtin(self.full).await.context("failed to store the template")?;
        host.stop_keeping(&old.layers);
        Ok(())
    }
}

/// The first and the last line of an error; the last one is from the program that failed.
fn brief(error: &str) -> String {
    let mut lines = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(last) => format!("{first}: {last}"),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_what_was_written_last() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LanguageState::read(dir.path()), None);
        for state in [
            LanguageState::Building,
            LanguageState::Failed { reason: "no network".into() },
            LanguageState::Ready,
            LanguageState::Off,
        ] {
            state.write(dir.path());
            assert_eq!(LanguageState::read(dir.path()), Some(state));
        }
        std::fs::write(LanguageState::path(dir.path()), "{").unwrap();
        assert_eq!(LanguageState::read(dir.path()), None);
    }

    #[test]
    fn a_failure_says_what_failed_and_why() {
        let error = "building layer `languages-1` failed: the provisioning script exit status: 100\nGet:1\nE: no network\n";
        let reason = brief(error);
        assert_eq!(
            reason,
            "building layer `languages-1` failed: the provisioning script exit status: 100: E: no network"
        );
        assert!(LanguageState::Failed { reason }.describe(true).contains("the next start tries again"));
        assert_ne!(LanguageState::Building.describe(true), LanguageState::Building.describe(false));
    }
}
