//! Probes: attacks as data.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::category::{self, Severity};

/// The layer of defence that an attack meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The check of code before it runs.
    Gate,
    /// The sandbox that code runs in.
    Wall,
    /// The model that is asked for code.
    Model,
}

impl Layer {
    /// All layers, in the order code meets them.
    pub const ALL: [Self; 3] = [Self::Model, Self::Gate, Self::Wall];

    /// Returns the name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Wall => "wall",
            Self::Model => "model",
        }
    }

    /// Returns the layer with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

/// The language of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Python 3.
    Python,
    /// JavaScript, as Node runs it.
    JavaScript,
    /// Programs of Bash.
    Bash,
    /// English, for models.
    Text,
}

impl Language {
    /// Returns the name in files, which is also the tag of a fence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::Bash => "bash",
            Self::Text => "text",
        }
    }
}

/// An attack.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The id: `escape-core-pattern`.
    pub id: String,
    /// The category: `escape`.
    pub category: String,
    /// The description, in a line.
    pub about: String,
    /// The language.
    #[serde(default = "python")]
    pub language: Language,
    /// The layers that it is meant for.
    #[serde(default = "both")]
    pub layers: Vec<Layer>,
    /// The program, or the request to a model.
    pub code: String,
    /// Messages of which the text is the first, sent one after the other; none if it is the only one.
    #[serde(default)]
    pub messages: Vec<String>,
    /// The severity of a breach, where it is not that of the category.
    pub severity: Option<Severity>,
    /// Seconds after which the program is stopped at the wall.
    pub timeout: Option<u32>,
    /// Text that standard output must be, byte for byte: data that arrives as something else is a breach.
    pub stdout: Option<String>,
    /// Program that runs in a new sandbox afterwards; a receipt from it is a breach.
    pub after: Option<String>,
    /// Patterns of code in a model's answer that show that it complied.
    #[serde(default)]
    pub complied: Vec<String>,
    /// Whether the host may suffer, if it has no limits. Left out unless it is asked for.
    #[serde(default)]
    pub destructive: bool,
    /// Whether it uses up what the sandbox has, so that its neighbours are looked at afterwards.
    #[serde(default)]
    pub heavy: bool,
    /// Whether a breach is only reported.
    #[serde(default)]
    pub informational: bool,
    /// Further reading: techniques and weaknesses beside those of the category.
    #[serde(default)]
    pub references: Vec<String>,
}

fn python() -> Language {
    Language::Python
}

fn both() -> Vec<Layer> {
    vec![Layer::Gate, Layer::Wall]
}

impl Probe {
    /// Returns the severity of a breach.
    pub fn severity(&self) -> Severity {
        let known = || category::find(&self.category).map_or(Severity::Medium, |category| category.severity);
        if self.informational { Severity::Informational } else { self.severity.unwrap_or_else(known) }
    }
}

/// Reason why a file of probes is invalid.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ProbeError {
    /// The file is not TOML of probes.
    #[error("{0}")]
    Malformed(String),
    /// A probe names a category that does not exist.
    #[error("probe `{probe}`: unknown category `{category}`; `sandcove redteam plugins` lists them")]
    Category { probe: String, category: String },
    /// Two probes have one id.
    #[error("the probe `{0}` is duplicated")]
    Duplicate(String),
    /// The program looks like a template.
    #[error("probe `{0}`: `{{{{`, `{{%` and `{{#` begin templates; write them differently")]
    Template(String),
    /// A pattern is malformed.
    #[error("probe `{probe}`: malformed pattern: {error}")]
    Pattern { probe: String, error: Box<regex::Error> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    probe: Vec<Probe>,
}

/// Reads a file of probes: TOML, with a table `[[probe]]` for each.
///
/// # Errors
/// When it is malformed, or a probe in it is.
pub fn read(text: &str) -> Result<Vec<Probe>, ProbeError> {
    let File { probe: probes } =
        toml::from_str(text).map_err(|error| ProbeError::Malformed(error.to_string()))?;
    let mut seen = HashSet::new();
    for probe in &probes {
        if category::find(&probe.category).is_none() {
            return Err(ProbeError::Category { probe: probe.id.clone(), category: probe.category.clone() });
        }
        if ["{{", "{%", "{#"].iter().any(|mark| probe.code.contains(mark)) {
            return Err(ProbeError::Template(probe.id.clone()));
        }
        for pattern in &probe.complied {
            regex::Regex::new(pattern)
                .map_err(|error| ProbeError::Pattern { probe: probe.id.clone(), error: Box::new(error) })?;
        }
        if !seen.insert(&probe.id) {
            return Err(ProbeError::Duplicate(probe.id.clone()));
        }
    }
    Ok(probes)
}

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../probes/", $name, ".toml")))),*] };
}

/// The files of probes.
const FILES: &[(&str, &str)] = files!("escape", "network", "data", "limits", "integrity", "gate", "model");

static BUILTIN: LazyLock<Vec<Probe>> =
    LazyLock::new(|| FILES.iter().flat_map(|(_, text)| read(text).unwrap_or_default()).collect());

/// Returns the probes that come with the program.
pub fn builtin() -> &'static [Probe] {
    &BUILTIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_probes_are_well_formed() {
        for (name, text) in FILES {
            if let Err(error) = read(text) {
                panic!("{name}: {error}");
            }
        }
        let ids: HashSet<_> = builtin().iter().map(|probe| &probe.id).collect();
        assert_eq!(ids.len(), builtin().len());
        assert!(builtin().len() >= 120, "{} probes", builtin().len());
    }

    #[test]
    fn every_category_has_probes_and_names_its_weaknesses() {
        for category in category::all() {
            assert!(builtin().iter().any(|probe| probe.category == category.id), "{}", category.id);
            assert!(!category.owasp.is_empty() && !category.mitre.is_empty() && !category.cwe.is_empty());
        }
        assert_eq!(category::all().len(), 24);
    }

    #[test]
    fn probes_are_programs_of_their_languages() {
        for probe in builtin() {
            assert!(crate::mutate::validity::holds(probe.language, &probe.code), "{}", probe.id);
            if let Some(after) = &probe.after {
                assert!(crate::mutate::validity::holds(probe.language, after), "{}", probe.id);
            }
        }
    }

    #[test]
    fn wrong_files_are_refused() {
        let probe = |more: &str| read(&format!("[[probe]]\nid = 'a'\nabout = 'b'\n{more}"));
        assert!(matches!(probe("category = 'x'\ncode = ''"), Err(ProbeError::Category { .. })));
        assert!(matches!(probe("category = 'escape'\ncode = '{{x}}'"), Err(ProbeError::Template(_))));
        assert!(probe("category = 'escape'\ncode = 'print(1)'\nunknown = 1").is_err());
        assert!(probe("category = 'escape'\ncode = 'print(1)'").is_ok());
    }
}
