//! Hooks: functions of the user's that are called around a run and around every row (`extensions`).

use std::path::Path;

use crate::reading::files;
use crate::script::{EntryPoint, Language};

/// The moment at which a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before the suite is expanded.
    BeforeAll,
    /// Before a row.
    BeforeEach,
    /// After a row.
    AfterEach,
    /// After the run.
    AfterAll,
}

impl Moment {
    const ALL: [Self; 4] = [Self::BeforeAll, Self::BeforeEach, Self::AfterEach, Self::AfterAll];

    /// Returns the name that suites and hooks use.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeAll => "beforeAll",
            Self::BeforeEach => "beforeEach",
            Self::AfterEach => "afterEach",
            Self::AfterAll => "afterAll",
        }
    }
}

/// One entry of `extensions`.
#[derive(Debug)]
pub struct Hook {
    /// The entry as written.
    pub reference: String,
    /// The language of the file.
    pub language: Language,
    /// The function.
    pub entry: EntryPoint,
    /// The only moment of a function that is named like one; other functions are called at all moments.
    pub only: Option<Moment>,
}

/// Reason why an entry of `extensions` is not a hook.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum HookError {
    /// The entry is not a `file://` path.
    #[error("the hook `{0}` must be a path like `file://hooks.py:beforeAll`")]
    NotAPath(String),
    /// The file is of another language.
    #[error("the hook `{0}` must be in a Python or JavaScript file")]
    UnknownLanguage(String),
    /// The file does not exist.
    #[error("file not found: `{}`, of the hook `{reference}`", path.display())]
    FileNotFound { path: std::path::PathBuf, reference: String },
}

impl Hook {
    /// Parses an entry whose path is relative to `base`.
    ///
    /// # Errors
    /// When the entry is not a file that can hold a hook.
    pub fn parse(reference: &str, base: &Path) -> Result<Self, HookError> {
        if !reference.starts_with("file://") {
            return Err(HookError::NotAPath(reference.to_owned()));
        }
        let (path, name) = files::split_name(reference);
        let path = base.join(path);
        let extension = files::extension(reference);
        if extension != "py" && !files::is_javascript(&extension) {
            return Err(HookError::UnknownLanguage(reference.to_owned()));
        }
        if !path.is_file() {
            return Err(HookError::FileNotFound { path, reference: reference.to_owned() });
        }
        let language = Language::of_file(reference);
        let only = Moment::ALL.into_iter().find(|moment| Some(moment.name()) == name);
        let entry = EntryPoint::function(base, reference, language, &["get_transform"]);
        Ok(Self { reference: reference.to_owned(), language, entry, only })
    }
}
