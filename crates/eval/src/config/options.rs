//! Options for loading a suite.

use std::path::PathBuf;

use crate::sandboxes::Fallback;

/// The options of the command line that say what a suite is read from.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// `-c`: files, directories, globs.
    pub configs: Vec<String>,
    /// The directory the command was given in.
    pub directory: PathBuf,
    /// `-p`: prompts instead of the configuration's.
    pub prompts: Vec<String>,
    /// `-r`: providers instead of the configuration's.
    pub providers: Vec<String>,
    /// `-t`: tests instead of the configuration's.
    pub tests: Option<String>,
    /// `--dataset`: a file of programming tasks instead of the configuration's tests.
    pub dataset: Option<String>,
    /// `-a`: assertions for the outputs in `model_outputs`.
    pub assertions: Option<String>,
    /// `--model-outputs`: outputs given beforehand, which `assertions` are about.
    pub model_outputs: Option<String>,
    /// `--env-file`, in order.
    pub env_files: Vec<PathBuf>,
    /// `--var`: variables for every test.
    pub vars: Vec<(String, String)>,
    /// Values of `--tag`.
    pub tags: Vec<(String, String)>,
    /// Value of `--description`.
    pub description: Option<String>,
    /// `--lenient`: errors are warnings.
    pub lenient: bool,
    /// `-x`: hooks that go before the configuration's.
    pub extensions: Vec<String>,
    /// `-j`: the most worker processes of a language.
    pub concurrency: Option<usize>,
    /// `--strict`: warnings are errors.
    pub strict: bool,
    /// The server of sandboxes where variables name none.
    pub server: Option<Fallback>,
}
