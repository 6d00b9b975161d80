//! What a Dockerfile asks for: its stages as steps of a build. Variables are expanded, stages that begin with another stage include
//! its steps, and whatever a template cannot express is refused.

mod copy;
mod mount;
mod run;
mod scope;
mod stage;
mod start;
mod state;

use std::collections::BTreeMap;

use crate::error::{Error, Notice, Result};
use crate::source::Dockerfile;

/// Start of a reference that names a template of the server instead of an image.
const TEMPLATE: &str = "template://";

/// Choices of the user about a build.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Values of `ARG` (`--build-arg`).
    pub args: BTreeMap<String, String>,
    /// Stage to build, by name or number; the last one if unset (`--target`).
    pub target: Option<String>,
}

/// A Dockerfile as stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All stages, in order. Only those that the target needs are to be built.
    pub stages: Vec<Stage>,
    /// Index of the stage that becomes the template.
    pub target: usize,
    /// Warnings, in order of their lines.
    pub notices: Vec<Notice>,
}

/// A stage, with the steps of the stages that it begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Name after `AS`, in lowercase.
    pub name: Option<String>,
    /// Line of `FROM`.
    pub line: usize,
    /// The base.
    pub base: Base,
    /// The steps.
    pub steps: Vec<Step>,
    /// Start command of `ENTRYPOINT` and `CMD`, for a shell.
    pub start: Option<String>,
}

/// The base of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// An image of a registry.
    Image(String),
    /// A template of the server.
    Template(String),
    /// Nothing (`FROM scratch`).
    Scratch,
}

/// A step, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Line of the instruction; 0 for a step that every Dockerfile has.
    pub line: usize,
    /// The instruction in the Dockerfile.
    pub text: String,
    /// The step.
    pub kind: StepKind,
    /// Mounts of a `Run`: things that it sees beside the files of the stage.
    pub mounts: Vec<Mount>,
}

/// A mount of a `RUN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// Files of the context, of another stage, of an image or of a template.
    Bind {
        /// Where the source is.
        from: Origin,
        /// Path of the source.
        source: String,
        /// Absolute path that the files are seen at.
        target: String,
    },
    /// A secret.
    Secret {
        /// Id of the secret.
        id: String,
        /// Absolute path of a file with the secret.
        target: Option<String>,
        /// Name of a variable with the secret.
        env: Option<String>,
        /// Whether the build fails without the secret.
        required: bool,
        /// Mode of the file in octal.
        mode: Option<String>,
        /// Owner of the file as `user:group`, by number.
        owner: String,
    },
}

/// The kinds of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// Runs a command line.
    Run(String),
    /// Sets variables of the template.
    Env(Vec<(String, String)>),
    /// Sets variables of the build.
    Arg(Vec<(String, String)>),
    /// Changes the working directory, an absolute path.
    Workdir(String),
    /// Changes the user.
    User(String),
    /// Copies files.
    Copy(Copy),
}

/// Files to copy (`COPY` and `ADD`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Where the sources are.
    pub from: Origin,
    /// The sources.
    pub sources: Vec<Source>,
    /// Destination: an absolute path, with `/` at its end if it is a directory.
    pub destination: String,
    /// Owner as `user` or `user:group`; that of the current user if unset.
    pub owner: Option<String>,
    /// Mode as in `--chmod`: octal, or symbolic like `u+x,go-w`; that of the files if unset.
    pub mode: Option<String>,
    /// Patterns of files to leave out.
    pub exclude: Vec<String>,
    /// Whether the directories above the sources are kept.
    pub parents: bool,
    /// Whether archives are extracted: local archives of `ADD`, or those of `ADD --unpack`.
    pub unpack: Unpack,
    /// Digest of a downloaded file (`ADD --checksum`), `sha256:…`.
    pub checksum: Option<String>,
}

/// The source of copied files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The build context.
    Context,
    /// An earlier stage, by index.
    Stage(usize),
    /// An image.
    Image(String),
    /// A template of the server.
    Template(String),
}

/// A source of copied files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path or pattern.
    Path(String),
    /// An `http` or `https` URL.
    Url(String),
    /// A file that is written in the Dockerfile.
    Inline {
        /// File name.
        name: String,
        /// Contents of the file.
        contents: String,
    },
}

/// The archives that are extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpack {
    /// No archive.
    Never,
    /// Archives of the build context.
    Local,
    /// All archives, downloaded ones too.
    Always,
}

impl Plan {
    /// Evaluates a Dockerfile.
    ///
    /// # Errors
    /// An error with its line, if the Dockerfile is wrong or asks for something that a template cannot have.
    pub fn new(file: &Dockerfile, options: &Options) -> Result<Self> {
        stage::evaluate(file, options)
    }

    /// The stages, images and templates that a stage copies from, in order of their first use.
    pub fn sources_of(&self, stage: usize) -> Vec<&Origin> {
        let mut found: Vec<&Origin> = Vec::new();
        for step in self.stages.get(stage).into_iter().flat_map(|stage| &stage.steps) {
            let copied = match &step.kind {
                StepKind::Copy(Copy { from, .. }) => Some(from),
                _ => None,
            };
            let mounted = step.mounts.iter().filter_map(|mount| match mount {
                Mount::Bind { from, .. } => Some(from),
                Mount::Secret { .. } => None,
            });
            for from in copied.into_iter().chain(mounted) {
                if *from != Origin::Context && !found.contains(&from) {
                    found.push(from);
                }
            }
        }
        found
    }
}

/// An error about an argument that is missing.
fn missing(instruction: &crate::source::Instruction, what: &str) -> Error {
    Error::at(instruction.line, format!("{} needs {what}", instruction.name))
}

#[cfg(test)]
mod tests;
