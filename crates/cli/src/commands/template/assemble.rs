//! The steps of a stage as the API takes them, with the file sets that they need.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use sandcove_dockerfile::context::{Content, Context, Entry, Selection};
use sandcove_dockerfile::fileset::{Archive, FileSet};
use sandcove_dockerfile::plan::{Base, Copy, Mount, Origin, Plan, Source, Step, StepKind, Unpack};
use sandcove_dockerfile::{Error, octal_mode};
use sandcove_wire::api::build::{StartBuild, StepMount, TemplateStep};
use sha2::{Digest, Sha256};

use super::download;
use super::extract::Extraction;
use super::pinned::Pinned;

/// A stage that can be built.
#[derive(Debug)]
pub struct Assembled {
    /// The request that starts the build, without credentials.
    pub start: StartBuild,
    /// Build of the template that the stage begins with.
    pub base_build: Option<String>,
    /// File sets by hash.
    pub files: Vec<(String, Files)>,
    /// Where each step comes from.
    pub lines: Lines,
}

/// The origin of a file set.
#[derive(Debug)]
pub enum Files {
    /// Files of this machine.
    Here(FileSet),
    /// Another stage, image or template.
    There(Extraction),
}

/// Lines and instructions of the steps, and the line of `FROM`.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    base: Option<(usize, String)>,
    steps: Vec<(usize, String)>,
}

impl Lines {
    /// Line and instruction of a step of the server: `base`, or a number from 1.
    pub fn of(&self, step: &str) -> Option<(usize, &str)> {
        let found = match step.parse::<usize>() {
            Ok(number) => self.steps.get(number.checked_sub(1)?),
            Err(_) if step == "base" => self.base.as_ref(),
            Err(_) => None,
        };
        found.filter(|(line, _)| *line > 0).map(|(line, text)| (*line, text.as_str()))
    }
}

/// The Dockerfile and the directories that steps are assembled from.
pub struct Sources<'s> {
    /// The Dockerfile.
    pub plan: &'s Plan,
    /// Path of the Dockerfile, for errors.
    pub file: &'s str,
    /// The build context.
    pub context: &'s Context,
    /// Directory for downloads.
    pub downloads: &'s Path,
    /// Builds of the templates that the Dockerfile names.
    pub pinned: &'s Pinned,
}

impl Sources<'_> {
    /// Assembles the stages that the target needs, by index.
    pub async fn assemble(&self) -> Result<BTreeMap<usize, Assembled>> {
        let mut needed = vec![self.plan.target];
        let mut at = 0;
        while let Some(stage) = needed.get(at).copied() {
            for origin in self.plan.sources_of(stage) {
                if let Origin::Stage(other) = origin
                    && !needed.contains(other)
                {
                    needed.push(*other);
                }
            }
            at += 1;
        }
        needed.sort_unstable();
        let mut assembled = BTreeMap::new();
        for stage in needed {
            // A stage needs earlier ones only, whose definitions name the files that are copied from them.
            let one = self.stage(stage, &assembled).await?;
            assembled.insert(stage, one);
        }
        Ok(assembled)
    }

    async fn stage(&self, index: usize, earlier: &BTreeMap<usize, Assembled>) -> Result<Assembled> {
        let Some(stage) = self.plan.stages.get(index) else { bail!("the Dockerfile has no stage {index}") };
        let mut start = StartBuild { start_cmd: stage.start.clone(), ..StartBuild::default() };
        match &stage.base {
            Base::Image(image) => start.from_image = Some(image.clone()),
            Base::Template(template) => start.from_template = Some(template.clone()),
            Base::Scratch => {
                let error = Error::at(stage.line, "a stage `FROM scratch` cannot be built")
                    .hint("copy from the stage before it, or begin this stage with a small image");
                return Err(self.located(&error, stage.line));
            }
        }
        let base = start.from_image.as_ref().or(start.from_template.as_ref()).map_or("", String::as_str);
        let base = Some((stage.line, format!("FROM {base}")));
        let base_build = start.from_template.as_ref().and_then(|name| self.pinned.get(name).cloned());
        let lines = Lines { base, steps: Vec::new() };
        let mut all = Assembled { start, base_build, files: Vec::new(), lines };
        for step in &stage.steps {
            match &step.kind {
                StepKind::Run(command) => {
                    let mounts = self.mounts(&mut all, step, earlier).await?;
                    all.push(step, "RUN", vec![command.clone()]);
                    if let Some(last) = all.start.steps.last_mut() {
                        last.mounts = mounts;
                    }
                }
                StepKind::Env(pairs) => all.push(step, "ENV", flat(pairs)),
                StepKind::Arg(pairs) => all.push(step, "ARG", flat(pairs)),
                StepKind::Workdir(path) => all.push(step, "WORKDIR", vec![path.clone()]),
                StepKind::User(name) => all.push(step, "USER", vec![name.clone()]),
                StepKind::Copy(copy) => self.copy(&mut all, step, copy, earlier).await?,
            }
        }
        Ok(all)
    }

    async fn copy(
        &self,
        all: &mut Assembled,
        step: &Step,
        copy: &Copy,
        earlier: &BTreeMap<usize, Assembled>,
    ) -> Result<()> {
        for (hash, [from, to], files) in self.sets(step, copy, earlier).await? {
            let mode = copy.mode.as_deref().and_then(octal_mode).unwrap_or_default();
            let arguments = vec![from, to, copy.owner.clone().unwrap_or_default(), mode];
            all.push(step, "COPY", arguments);
            if let Some(last) = all.start.steps.last_mut() {
                last.files_hash = Some(hash.clone());
            }
            all.need(hash, files);
        }
        Ok(())
    }

    /// The file set of each source: its hash, source and destination, and the files.
    async fn sets(
        &self,
        step: &Step,
        copy: &Copy,
        earlier: &BTreeMap<usize, Assembled>,
    ) -> Result<Vec<(String, [String; 2], Files)>> {
        let mut sets = Vec::with_capacity(copy.sources.len());
        for source in &copy.sources {
            sets.push(match (&copy.from, source) {
                (Origin::Context, source) => {
                    let set = self.set(step, copy, source).await?;
                    let hash = set.hash().map_err(|error| self.located(&error, step.line))?;
                    let arguments = [set.source.clone(), set.destination.clone()];
                    (hash, arguments, Files::Here(set))
                }
                (origin, Source::Path(path)) => {
                    let extraction = Extraction::new(step.line, origin, path, copy)
                        .map_err(|error| self.located(&error, step.line))?;
                    let definition = match origin {
                        Origin::Stage(stage) => {
                            earlier.get(stage).map(Assembled::definition).unwrap_or_default()
                        }
                        Origin::Image(image) => image.clone(),
                        Origin::Template(template) => {
                            let build = self.pinned.get(template).map_or("", String::as_str);
                            format!("template://{template} {build}")
                        }
                        Origin::Context => String::new(),
                    };
                    let arguments = [extraction.root.clone(), extraction.destination.clone()];
                    (digest(&[&definition, path, &copy.destination]), arguments, Files::There(extraction))
                }
                (_, _) => {
                    let error = Error::at(step.line, "a heredoc or URL cannot be copied from a stage");
                    return Err(self.located(&error, step.line));
                }
            });
        }
        Ok(sets)
    }

    /// The mounts of a `RUN`.
    async fn mounts(
        &self,
        all: &mut Assembled,
        step: &Step,
        earlier: &BTreeMap<usize, Assembled>,
    ) -> Result<Vec<StepMount>> {
        let mut mounts = Vec::with_capacity(step.mounts.len());
        for mount in &step.mounts {
            mounts.push(match mount.clone() {
                Mount::Secret { id, target, env, required, mode, owner } => {
                    StepMount::Secret { id, target, env, owner: Some(owner), mode, required }
                }
                Mount::Bind { from, source, target } => {
                    let copy = Copy {
                        from,
                        sources: vec![Source::Path(source)],
                        destination: target.clone(),
                        owner: None,
                        mode: None,
                        exclude: Vec::new(),
                        parents: false,
                        unpack: Unpack::Never,
                        checksum: None,
                    };
                    let sets = self.sets(step, &copy, earlier).await?;
                    let Some((files_hash, [root, _], files)) = sets.into_iter().next() else {
                        bail!("a mount has no source");
                    };
                    // The archive of another stage has the name of the target.
                    let source = match &files {
                        Files::Here(_) => root,
                        Files::There(one) => format!("{root}/{}", one.name.as_deref().unwrap_or_default()),
                    };
                    all.need(files_hash.clone(), files);
                    StepMount::Bind { target, source, files_hash }
                }
            });
        }
        Ok(mounts)
    }

    /// The file set of a source on this machine.
    async fn set(&self, step: &Step, copy: &Copy, source: &Source) -> Result<FileSet> {
        let located = |error: Error| self.located(&error, step.line);
        match source {
            Source::Inline { name, contents } => {
                let entry = Entry::inline(name.clone(), contents.clone());
                let selection =
                    Selection { source: name.clone(), entries: vec![entry], into_directory: false };
                Ok(FileSet::new(selection, &copy.destination))
            }
            Source::Path(path) => {
                let selection = self.context.select(copy, path).map_err(located)?;
                if copy.unpack != Unpack::Never
                    && let [Entry { content: Content::File { path, .. }, .. }] = selection.entries.as_slice()
                    && let Some(archive) = Archive::open(path).map_err(located)?
                {
                    return Ok(FileSet::unpacked(archive, &copy.destination));
                }
                Ok(FileSet::new(selection, &copy.destination))
            }
            Source::Url(url) => {
                let path = download::download(url, copy.checksum.as_deref(), self.downloads)
                    .await
                    .map_err(|error| anyhow!("{}:{}: {error:#}", self.file, step.line))?;
                if copy.unpack == Unpack::Always
                    && let Some(archive) = Archive::open(&path).map_err(located)?
                {
                    return Ok(FileSet::unpacked(archive, &copy.destination));
                }
                let is_directory = copy.destination.ends_with('/');
                let name = match (is_directory, download::name(url)) {
                    (_, Some(name)) => name,
                    (false, None) => "download".to_owned(),
                    (true, None) => {
                        let error = Error::at(step.line, format!("`{url}` has no file name"))
                            .hint("name the file in the destination, without `/` at its end");
                        return Err(located(error));
                    }
                };
                let size = std::fs::metadata(&path)?.len();
                let content = Content::File { path, size };
                let entry = Entry { path: name.clone(), mode: 0o100_600, modified: 0, content };
                let selection = Selection { source: name, entries: vec![entry], into_directory: false };
                Ok(FileSet::new(selection, &copy.destination))
            }
        }
    }

    fn located(&self, error: &Error, line: usize) -> anyhow::Error {
        anyhow!(error.clone().or_at(line).located(self.file))
    }
}

impl Assembled {
    /// Adds a file set, once.
    fn need(&mut self, hash: String, files: Files) {
        if !self.files.iter().any(|(known, _)| *known == hash) {
            self.files.push((hash, files));
        }
    }

    fn push(&mut self, step: &Step, kind: &str, args: Vec<String>) {
        self.start.steps.push(TemplateStep { kind: kind.to_owned(), args, ..TemplateStep::default() });
        self.lines.steps.push((step.line, step.text.clone()));
    }

    /// A text that names what the stage is built from, apart from its start command.
    pub fn definition(&self) -> String {
        let mut parts = vec![
            self.start.from_image.clone().unwrap_or_default(),
            self.start.from_template.clone().unwrap_or_default(),
        ];
        parts.extend(self.base_build.clone());
        for step in &self.start.steps {
            parts.push(step.kind.clone());
            parts.push(step.args.len().to_string());
            parts.extend(step.args.iter().cloned());
            parts.extend(step.files_hash.clone());
            parts.extend(step.mounts.iter().filter_map(|mount| serde_json::to_string(mount).ok()));
        }
        digest(&parts.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn flat(pairs: &[(String, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect()
}

/// SHA-256 over texts and their lengths, as hexadecimal digits.
pub fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
