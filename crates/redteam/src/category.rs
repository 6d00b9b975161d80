//! Categories: what probes attack, how severe a breach is, and the lists of weaknesses it belongs to.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Severity of a breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Reported only.
    Informational,
    /// Low severity.
    Low,
    /// Medium severity.
    Medium,
    /// High severity.
    High,
    /// Critical severity.
    Critical,
}

impl Severity {
    /// All severities, the worst first.
    pub const ALL: [Self; 5] = [Self::Critical, Self::High, Self::Medium, Self::Low, Self::Informational];

    /// Returns the name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Informational => "informational",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Returns the severity with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// A kind of attack.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Category {
    /// The id: `escape`.
    pub id: String,
    /// The severity of a breach.
    pub severity: Severity,
    /// The description, in a line.
    pub about: String,
    /// Entries of OWASP's list for applications of models: `LLM06`.
    pub owasp: Vec<String>,
    /// Techniques of MITRE ATT&CK: `T1611`.
    pub mitre: Vec<String>,
    /// Weaknesses: the numbers of CWE.
    pub cwe: Vec<u32>,
    /// Advice about a breach.
    pub advice: String,
}

impl Category {
    /// Returns the plugin id: `sandbox:escape`.
    pub fn plugin(&self) -> String {
        format!("sandbox:{}", self.id)
    }
}

#[derive(Deserialize)]
struct Table {
    category: Vec<Category>,
}

/// A damaged table leaves no categories, which a test notices.
static CATEGORIES: LazyLock<Vec<Category>> = LazyLock::new(|| {
    toml::from_str::<Table>(include_str!("../data/categories.toml"))
        .map(|table| table.category)
        .unwrap_or_default()
});

/// Returns all categories.
pub fn all() -> &'static [Category] {
    &CATEGORIES
}

/// Returns the category with an id, with or without `sandbox:`.
pub fn find(id: &str) -> Option<&'static Category> {
    let id = id.strip_prefix("sandbox:").unwrap_or(id);
    CATEGORIES.iter().find(|category| category.id == id)
}
