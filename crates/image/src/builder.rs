//! Building the missing layers of templates.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::lines::Tail;
use crate::store::Staging;
use crate::{
    Error, File, Layer, LayerId, LayerStore, Origin, Result, StepRoot, StepRunner, Template, archive,
    bootstrap,
};

/// Free space, MiB, below which a failed build is reported as a full disk.
const FULL_MIB: u64 = 64;

/// Sources of a build.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// URL of a Debian mirror; `None` stands for Debian's own.
    pub mirror: Option<String>,
    /// Directory of finished layers as tarballs, read before a build and filled after it.
    pub cache: Option<PathBuf>,
    /// Directory of layers that were built before there was a storage pool; they are copied.
    pub ahead: Option<PathBuf>,
}

/// Progress of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// The build of a missing layer begins.
    Building(&'a LayerId),
    /// A program of the build has written a line.
    Output(&'a str),
    /// The layer is finished; the duration of its build.
    Ready(&'a LayerId, Duration),
}

/// Builder of layers.
#[derive(Debug)]
pub struct Builder<R> {
    store: LayerStore,
    runner: R,
    sources: Sources,
}

impl<R: StepRunner> Builder<R> {
    /// Creates a builder for `store` that runs scripts through `runner`.
    pub fn new(store: LayerStore, runner: R, sources: Sources) -> Self {
        Self { store, runner, sources }
    }

    /// Builds the layers of `templates` that the store lacks. Takes no lock when none is missing.
    ///
    /// # Errors
    /// When a layer cannot be built; layers that were finished before stay.
    pub async fn ensure(
        &self,
        templates: &[Template],
        progress: &mut (dyn FnMut(Event<'_>) + Send),
    ) -> Result<()> {
        let layers = templates.iter().flat_map(|template| stacked(&template.layers));
        if layers.clone().all(|(layer, _)| self.store.has(&layer.id)) {
            return Ok(());
        }
        let _lock = self.store.lock()?;
        let mut missing: Vec<_> = layers.filter(|(layer, _)| !self.store.has(&layer.id)).collect();
        missing.dedup_by_key(|(layer, _)| &layer.id);
        let needed_mib = missing.iter().map(|(layer, _)| layer.recipe.size_mib).sum();
        if self.store.free_mib()? < needed_mib {
            return Err(self.store.no_room(needed_mib));
        }
        for (layer, below) in missing {
            if self.store.has(&layer.id) {
                continue;
            }
            let started = Instant::now();
            progress(Event::Building(&layer.id));
            let built = self.build(layer, below, progress).await;
            // Programs report a full disk in many ways.
            if built.is_err() && self.store.free_mib().is_ok_and(|free| free < FULL_MIB) {
                return Err(self.store.no_room(layer.recipe.size_mib));
            }
            built?;
            progress(Event::Ready(&layer.id, started.elapsed()));
        }
        Ok(())
    }

    async fn build(
        &self,
        layer: &Layer,
        below: &[Layer],
        progress: &mut (dyn FnMut(Event<'_>) + Send),
    ) -> Result<()> {
        let staging = self.store.stage(&layer.id)?;
        if let Some(ahead) = &self.sources.ahead
            && archive::copy(ahead, &layer.id, &staging.tree).await?
        {
            return self.store.publish(staging, &layer.id);
        }
        if let Some(cache) = &self.sources.cache
            && archive::unpack(cache, &layer.id, &staging.tree).await?
        {
            return self.store.publish(staging, &layer.id);
        }
        self.make(layer, below, &staging, progress).await?;
        if let Some(cache) = &self.sources.cache {
            archive::pack(cache, &layer.id, &staging.tree).await?;
        }
        self.store.publish(staging, &layer.id)
    }

    async fn make(
        &self,
        layer: &Layer,
        below: &[Layer],
        staging: &Staging,
        progress: &mut (dyn FnMut(Event<'_>) + Send),
    ) -> Result<()> {
        let mut last = Tail::default();
        let recipe = &layer.recipe;
        if let Origin::Debian { suite, packages } = &recipe.origin {
            let mirror = self.sources.mirror.as_deref();
            let mut output = |line: &str| {
                last.push(line);
                progress(Event::Output(line));
            };
            let ended = bootstrap::debian(suite, packages, &staging.tree, mirror, &mut output).await;
            check(layer, "mmdebstrap", ended, &last)?;
        }
        for file in &recipe.files {
            place(&staging.tree, file)?;
        }
        let root = StepRoot {
            lowers: below.iter().rev().map(|layer| self.store.path(&layer.id)).collect(),
            upper: staging.tree.clone(),
            scratch: staging.scratch.clone(),
        };
        let mut output = |line: &str| {
            last.push(line);
            progress(Event::Output(line));
        };
        let ended = self.runner.run(&root, recipe.script, &mut output).await;
        check(layer, "the provisioning script", ended, &last)
    }
}

/// Iterates over the layers from the bottom, each with the layers below it.
fn stacked(layers: &[Layer]) -> impl Iterator<Item = (&Layer, &[Layer])> + Clone {
    layers.iter().enumerate().map(|(index, layer)| (layer, &layers[..index]))
}

fn check(layer: &Layer, what: &str, ended: std::io::Result<ExitStatus>, last: &Tail) -> Result<()> {
    let status = ended.map_err(|source| Error::Tool { program: what.to_owned(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        layer: layer.id.to_string(),
        what: what.to_owned(),
        status: status.to_string(),
        output: last.text(),
    })
}

/// Writes one file of a recipe. The tree holds only packages of the distribution at this point, so no link in it leads
/// out of the tree.
fn place(tree: &Path, file: &File) -> Result<()> {
    let path = tree.join(&file.path);
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(Error::path("create", parent))?;
    }
    std::fs::write(&path, &file.contents).map_err(Error::path("write", &path))?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(file.mode))
        .map_err(Error::path("set permissions of", &path))
}
