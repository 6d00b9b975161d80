//! The context that steps of a build hand on to the next one (contract: templates, section 9.2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// User, directory and variables of a build at one of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Account of commands.
    pub user: String,
    /// Directory of commands; the home directory of the account, which only the files of the build know, when unset.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Variables. Sandboxes do not get them; the start command, the ready command and kernels of the code interpreter do.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The code interpreter, if sandboxes have one.
    #[serde(default)]
    pub interpreter: Option<Interpreter>,
}

/// The code interpreter of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Path of the Python that runs its kernels.
    pub python: String,
    /// Directories that this Python loads code from, separated by colons; those of the server's own templates when unset.
    pub sources: Option<String>,
}

impl Context {
    /// Name of the account that builds from images begin with.
    pub const DEFAULT_USER: &str = "user";

    /// The context of a user, in the home directory of the user and without variables.
    pub fn of_user(user: &str) -> Self {
        Self { user: user.to_owned(), workdir: None, env: BTreeMap::new(), interpreter: None }
    }
}
