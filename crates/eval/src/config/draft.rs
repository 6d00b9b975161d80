//! The configuration of a red team as a user fills it in, by questions in a terminal or on pages.

use std::path::{Path, PathBuf};

use sandcove_redteam::generate::NO_MODEL;
use sandcove_redteam::plugin::{self, Plugin};
use sandcove_redteam::strategy::{self, Strategy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::attacks::BESIDE;
use crate::model::Object;
use crate::output::document_as_yaml;
use crate::provider::http;

/// A type of target.
#[derive(Debug)]
pub struct TargetKind {
    /// The name that is typed.
    pub name: &'static str,
    /// The description.
    pub about: &'static str,
    /// The usual id of such a target.
    pub usual: &'static str,
}

/// The types of targets.
pub const KINDS: &[TargetKind] = &[
    TargetKind {
        name: "validator",
        about: "a Python check that is handed code before it runs",
        usual: "file://./validate_and_run_code_e2b.py",
    },
    TargetKind { name: "sandbox", about: "the sandboxes of a server", usual: "sandbox" },
    TargetKind { name: "script", about: "a program that answers prompts", usual: "file://./target.py" },
    TargetKind { name: "http", about: "a service that answers prompts", usual: "http://127.0.0.1:8000/chat" },
    TargetKind { name: "model", about: "a model that writes code", usual: "openai:gpt-4.1" },
];

/// The purpose of a target where the user gives none.
pub const PURPOSE: &str = "Runs generated code in a sandbox, after a check of what it does.";
/// The name of a target where the user gives none.
pub const NAME: &str = "code-sandbox";
/// The plugins of a red team where the user names none.
pub const PLUGINS: &[&str] = &["recommended"];
/// The strategies of a red team where the user names none.
pub const STRATEGIES: &[&str] =
    &["basic", "code-injection", "sandbox-bypass", "jailbreak:composite", "malicious-patches"];

/// The answers of a user.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Draft {
    /// The name of the target in reports.
    pub name: String,
    /// The id of the target.
    pub id: String,
    /// Settings of the target.
    pub config: Object,
    /// Purpose of the target.
    pub purpose: String,
    /// Key features of the target.
    pub features: String,
    /// The industry that the target serves.
    pub industry: String,
    /// Restrictions of the target.
    pub restrictions: String,
    /// Ids of plugins.
    pub plugins: Vec<String>,
    /// Ids of strategies.
    pub strategies: Vec<String>,
}

/// Reason why a draft is not a configuration, or was not written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum DraftError {
    /// Something that must be filled in is empty.
    #[error("the {0} is missing")]
    Missing(&'static str),
    /// No plugin has the name.
    #[error("unknown plugin `{0}`; `sandcove redteam plugins` lists them")]
    Plugin(String),
    /// No strategy has the name.
    #[error("unknown strategy `{0}`; `sandcove redteam plugins` lists them")]
    Strategy(String),
    /// The file is there.
    #[error("`{}` exists; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// The file could not be written.
    #[error("failed to write `{}`: {error}", .path.display())]
    Write { path: PathBuf, error: std::io::Error },
}

impl Draft {
    /// Checks the names, and returns what will be skipped.
    ///
    /// # Errors
    /// When something is missing, or a name belongs to nothing.
    pub fn review(&self) -> Result<Vec<String>, DraftError> {
        for (value, what) in [(&self.id, "id of the target"), (&self.name, "name of the target")] {
            if value.trim().is_empty() {
                return Err(DraftError::Missing(what));
            }
        }
        if self.plugins.is_empty() {
            return Err(DraftError::Missing("list of plugins"));
        }
        let mut skipped = Vec::new();
        for id in &self.plugins {
            match plugin::resolve(id) {
                Plugin::Unknown => return Err(DraftError::Plugin(id.clone())),
                Plugin::Unavailable(why) => skipped.push(format!("plugin {id} will be skipped: {why}")),
                // The draft names no model.
                Plugin::Written(_) | Plugin::Several(_) => {
                    skipped.push(format!("plugin {id} will be skipped: {NO_MODEL}"));
                }
                Plugin::Probes(_) | Plugin::Intent => {}
            }
        }
        for id in &self.strategies {
            match strategy::resolve(id, &[]) {
                Strategy::Unknown => return Err(DraftError::Strategy(id.clone())),
                Strategy::Unavailable(why) => skipped.push(format!("strategy {id} will be skipped: {why}")),
                Strategy::Rewritten(_) => skipped.push(format!("strategy {id} will be skipped: {NO_MODEL}")),
                _ => {}
            }
        }
        Ok(skipped)
    }

    /// Settings of the target. A service is sent the prompt in JSON where they do not say how.
    fn settings(&self) -> Object {
        let mut config = self.config.clone();
        let is_service =
            self.id == "http" || self.id.starts_with("http://") || self.id.starts_with("https://");
        if is_service && http::check::of_prompt(&self.id, &config).is_some() {
            config.insert("method".to_owned(), json!("POST"));
            config.insert("headers".to_owned(), json!({"Content-Type": "application/json"}));
            config.insert("body".to_owned(), json!({"prompt": "{{prompt}}"}));
        }
        config
    }

    /// Returns the configuration as it is written.
    pub fn text(&self) -> String {
        let mut target = Object::new();
        target.insert("id".to_owned(), json!(self.id));
        target.insert("label".to_owned(), json!(self.name));
        let settings = self.settings();
        if !settings.is_empty() {
            target.insert("config".to_owned(), Value::Object(settings));
        }
        let document = json!({
            "description": format!("Red team of {}", self.name),
            "targets": [target],
            "redteam": {"purpose": self.whole_purpose(), "plugins": self.plugins, "strategies": self.strategies},
        });
        format!(
            "# A red team. Run it with `sandcove redteam run`; `sandcove redteam plugins` lists what can be asked for.\n{}",
            document_as_yaml(&document)
        )
    }

    /// The purpose in one text, as models and reports get it.
    fn whole_purpose(&self) -> String {
        let mut text = if self.purpose.trim().is_empty() { PURPOSE.to_owned() } else { self.purpose.clone() };
        for (name, answer) in [
            ("Key features", &self.features),
            ("Industry", &self.industry),
            ("Restrictions", &self.restrictions),
        ] {
            if !answer.trim().is_empty() {
                text.push_str(&format!("\n{name}: {answer}"));
            }
        }
        text
    }

    /// Writes the configuration under its usual name, or beside one that is there, and returns the path.
    ///
    /// # Errors
    /// When the file is there and is not to be replaced, or cannot be written.
    pub fn write(&self, directory: &Path, replaces: bool) -> Result<PathBuf, DraftError> {
        let failed = |path: &Path, error| DraftError::Write { path: path.to_owned(), error };
        std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
        let usual = directory.join("promptfooconfig.yaml");
        let path = if usual.exists() && !replaces { directory.join(BESIDE) } else { usual };
        if path.exists() && !replaces {
            return Err(DraftError::Exists(path));
        }
        std::fs::write(&path, self.text()).map_err(|error| failed(&path, error))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft {
            name: "check".to_owned(),
            id: "file://./check.py".to_owned(),
            industry: "games".to_owned(),
            plugins: vec!["recommended".to_owned(), "pii:direct".to_owned()],
            strategies: vec!["basic".to_owned()],
            ..Draft::default()
        }
    }

    #[test]
    fn a_service_is_sent_the_prompt() {
        let service = |config: Value| {
            let config = config.as_object().unwrap().clone();
            Draft { id: "http://127.0.0.1:8000/chat".to_owned(), config, ..draft() }.settings()
        };
        assert_eq!(service(json!({}))["body"], json!({"prompt": "{{prompt}}"}));
        assert_eq!(Value::Object(service(json!({"body": "{{prompt}}"}))), json!({"body": "{{prompt}}"}));
        assert!(draft().settings().is_empty());
    }

    #[test]
    fn drafts_are_reviewed() {
        assert_eq!(draft().review().unwrap().len(), 1);
        let error = |draft: Draft| draft.review().unwrap_err().to_string();
        assert_eq!(error(Draft { id: " ".to_owned(), ..draft() }), "the id of the target is missing");
        assert!(
            error(Draft { plugins: vec!["nothing".to_owned()], ..draft() })
                .contains("unknown plugin `nothing`")
        );
        assert!(
            error(Draft { strategies: vec!["no".to_owned()], ..draft() }).contains("unknown strategy `no`")
        );
        assert!(draft().text().contains("Industry: games"));
    }

    #[test]
    fn a_file_that_is_there_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        assert_eq!(draft().write(at, false).unwrap(), at.join("promptfooconfig.yaml"));
        assert_eq!(draft().write(at, false).unwrap(), at.join(BESIDE));
        assert!(matches!(draft().write(at, false), Err(DraftError::Exists(_))));
        assert_eq!(draft().write(at, true).unwrap(), at.join("promptfooconfig.yaml"));
    }
}
