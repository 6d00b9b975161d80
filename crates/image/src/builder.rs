//! Making the layers of a template that are not there yet.

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

/// A file system with less room than this, MiB, is why a build on it failed.
const FULL_MIB: u64 = 64;

/// Where building gets things from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// URL of a Debian mirror; Debian's own when `None`.
    pub mirror: Option<String>,
    /// A directory with finished layers as tarballs, read before building and filled after.
    pub cache: Option<PathBuf>,
}

/// What a build tells whoever watches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A layer is missing and is now made.
    Building(&'a LayerId),
    /// A line some program wrote.
    Output(&'a str),
    /// The layer is in place.
    Ready(&'a LayerId, Duration),
}

/// Makes layers.
#[derive(Debug)]
pub struct Builder<R> {
    store: LayerStore,
    runner: R,
    sources: Sources,
}

impl<R: StepRunner> Builder<R> {
    /// Builds into `store`; scripts run through `runner`.
    pub fn new(store: LayerStore, runner: R, sources: Sources) -> Self {
        Self { store, runner, sources }
    }

    /// Makes what `templates` need and the store lacks. Does nothing, and takes no lock, when nothing is missing.
    ///
    /// # Errors
    /// When a layer cannot be built; layers finished before stay.
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
            // Programs say so in many ways, some at great length.
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

/// The layers bottom-up, each with what is below it.
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

/// Writes one file of a recipe. The tree holds nothing but packages of the distribution at this point, so its directories
/// can be trusted not to lead out of it.
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
