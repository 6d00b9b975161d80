//! An import from beginning to end: what an image consists of, then its layers, which are downloaded in parallel and unpacked in order.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};

use super::Image;
use super::archive::Archive;
use super::blob::Blob;
use super::digest::Digest;
use super::download::download;
use super::error::{Error, Result};
use super::layer::{LayerError, Limit, Limits};
use super::manifest::{Config, Descriptor, Document, DocumentError, MAX_CONFIG};
use super::platform::Platform;
use super::reference::Reference;
use super::registry::Registry;
use super::settings::{Credentials, Progress, Settings};
use super::target::{ImportStart, Target, TargetError, TargetImport};
use crate::LayerId;

/// Maximum depth of indexes in indexes.
const MAX_INDEXES: usize = 3;

/// Everything about an image but its layers.
pub(super) struct Plan {
    /// Reference as given, for errors.
    pub image: String,
    pub digest: Digest,
    pub config: Config,
    pub config_digest: Digest,
    pub layers: Vec<Descriptor>,
}

/// Where layers come from.
#[derive(Clone)]
enum Blobs {
    Registry(Registry),
    Archive(Arc<Archive>),
}

/// A report of a task for the caller's function.
enum Report {
    Downloading(usize, u64),
    Unpacked(usize),
}

pub(super) async fn from_registry<T: Target>(
    target: &T,
    image: &str,
    credentials: &Credentials,
    settings: &Settings,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Image<T::Lease>> {
    let reference = Reference::parse(image)?;
    let registry = Registry::open(image, &reference, credentials, settings).await?;
    let invalid = |reason: String| Error::Invalid { image: image.to_owned(), reason };
    let wrong = |error: DocumentError| invalid(error.to_string());
    let mut bytes = registry.manifest(&reference.version()).await?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = reference.digest
        && expected != digest
    {
        return Err(invalid(format!("the registry returned a manifest with the digest {digest}")));
    }
    let mut indexes = 0;
    let (config, layers) = loop {
        match Document::parse(&bytes).map_err(wrong)? {
            Document::Manifest { config, layers } => break (config, layers),
            Document::Index(manifests) => {
                indexes += 1;
                if indexes > MAX_INDEXES {
                    return Err(invalid("its indexes are nested too deeply".to_owned()));
                }
                let chosen = choose(image, &manifests)?;
                bytes = registry.manifest(&chosen.digest.to_string()).await?;
                check(&bytes, chosen, "a manifest").map_err(wrong)?;
            }
        }
    };
    if config.size > MAX_CONFIG {
        return Err(invalid(format!(
            "its configuration has {} bytes; {MAX_CONFIG} are supported",
            config.size
        )));
    }
    let config_bytes = registry.small_blob(&config.digest, MAX_CONFIG).await?;
    check(&config_bytes, &config, "the configuration").map_err(wrong)?;
    let config_digest = config.digest;
    let config = Config::parse(&config_bytes).map_err(wrong)?;
    let plan = Plan { image: image.to_owned(), digest, config, config_digest, layers };
    run(target, plan, Blobs::Registry(registry), settings, progress).await
}

pub(super) async fn from_archive<T: Target>(
    target: &T,
    path: &Path,
    name: Option<&str>,
    settings: &Settings,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Image<T::Lease>> {
    let (path, name) = (path.to_owned(), name.map(str::to_owned));
    let limit = settings.max_bytes.saturating_mul(2);
    let scratch = target.scratch().await.map_err(|error| named(&path.display().to_string(), None, error))?;
    let (plan, archive) = blocking(move || {
        let mut archive = Archive::open(&path, scratch, limit)?;
        let plan = archive.plan(name.as_deref())?;
        Ok((plan, archive))
    })
    .await?;
    run(target, plan, Blobs::Archive(Arc::new(archive)), settings, progress).await
}

/// Chooses from an index for this machine.
pub(super) fn choose<'a>(image: &str, manifests: &'a [Descriptor]) -> Result<&'a Descriptor> {
    let wanted = Platform::host();
    wanted.choose(manifests).map_err(|found| Error::Platform { image: image.to_owned(), found, wanted })
}

/// Checks size and digest of a document.
pub(super) fn check(
    bytes: &[u8],
    expected: &Descriptor,
    what: &str,
) -> std::result::Result<(), DocumentError> {
    if bytes.len() as u64 != expected.size {
        let what = what.to_owned();
        return Err(DocumentError::Size { what, found: bytes.len(), expected: expected.size });
    }
    let found = Digest::of(bytes);
    if found != expected.digest {
        return Err(DocumentError::Digest { what: what.to_owned(), found, expected: expected.digest });
    }
    Ok(())
}

async fn run<T: Target>(
    target: &T,
    plan: Plan,
    blobs: Blobs,
    settings: &Settings,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Image<T::Lease>> {
    let size = check_plan(&plan, settings)?;
    progress(Progress::Resolved {
        digest: &plan.digest.to_string(),
        layers: plan.layers.len(),
        size_bytes: size,
    });
    let id = LayerId::of_image(plan.config_digest.bytes());
    let room = settings.max_bytes.min(settings.room);
    let limits = Limits { bytes: room, entries: settings.max_entries };
    let begun = target.begin(*plan.config_digest.bytes(), limits).await;
    let (size_bytes, lease) = match begun.map_err(|error| named(&plan.image, None, error))? {
        ImportStart::Exists { size_bytes, lease } => {
            progress(Progress::Exists);
            (size_bytes, lease)
        }
        ImportStart::Import(_) if size > room => return Err(too_large(plan.image, size, room)),
        ImportStart::Import(import) => {
            let names: Vec<String> = plan.layers.iter().map(|layer| layer.digest.to_string()).collect();
            let (sender, mut reports) = mpsc::channel(64);
            let mut show = |report: Report| match report {
                Report::Downloading(index, done) => {
                    let (layer, size_bytes) = (&names[index], plan.layers[index].size);
                    progress(Progress::Downloading { layer, done, size_bytes });
                }
                Report::Unpacked(index) => {
                    progress(Progress::Unpacked { layer: &names[index], number: index + 1, of: names.len() });
                }
            };
            let work = build(&plan, target, import, blobs, settings, sender);
            tokio::pin!(work);
            let done = loop {
                tokio::select! {
                    biased;
                    Some(report) = reports.recv() => show(report),
                    done = &mut work => break done,
                }
            };
            while let Ok(report) = reports.try_recv() {
                show(report);
            }
            done?
        }
    };
    Ok(Image {
        layer: id.to_string(),
        digest: plan.digest.to_string(),
        env: plan.config.env(),
        user: plan.config.user(),
        workdir: plan.config.workdir(),
        labels: plan.config.labels(),
        size_bytes,
        lease,
    })
}

/// Checks what is known before any layer is downloaded, and returns the size of the compressed layers.
fn check_plan(plan: &Plan, settings: &Settings) -> Result<u64> {
    let (image, wanted, found) = (plan.image.clone(), Platform::host(), plan.config.platform());
    if !wanted.runs(&found) {
        return Err(Error::Platform { image, found: found.to_string(), wanted });
    }
    let (layers, ids) = (plan.layers.len(), plan.config.diff_ids().len());
    if layers != ids {
        let reason = format!("its manifest has {layers} layers, but its configuration {ids}");
        return Err(Error::Invalid { image, reason });
    }
    let size = plan.layers.iter().fold(0_u64, |size, layer| size.saturating_add(layer.size));
    if size > settings.max_bytes {
        return Err(too_large(image, size, settings.max_bytes));
    }
    Ok(size)
}

fn too_large(image: String, size: u64, limit: u64) -> Error {
    let what = format!("its compressed layers have {} MB", size / 1_000_000);
    Error::TooLarge { image, what, limit: Limit::Bytes(limit) }
}

/// Downloads and unpacks all layers, and publishes the tree. Returns the size of the files.
async fn build<T: Target>(
    plan: &Plan,
    target: &T,
    import: T::Import,
    blobs: Blobs,
    settings: &Settings,
    reports: mpsc::Sender<Report>,
) -> Result<(u64, T::Lease)> {
    // Dropping the set ends the downloads.
    let mut downloads = JoinSet::new();
    let mut arriving = Vec::new();
    if let Blobs::Registry(registry) = &blobs {
        let permits = Arc::new(Semaphore::new(settings.parallel.max(1)));
        for (index, layer) in plan.layers.iter().cloned().enumerate() {
            let (sender, receiver) = oneshot::channel();
            arriving.push(receiver);
            let (registry, permits, reports) = (registry.clone(), permits.clone(), reports.clone());
            let (target, image) = (target.clone(), plan.image.clone());
            downloads.spawn(async move {
                // The semaphore is never closed; tasks get permits in the order of the layers.
                let Ok(_permit) = permits.acquire().await else { return };
                let report = |done| {
                    // A report that has no room is left out.
                    let _ = reports.try_send(Report::Downloading(index, done));
                };
                let downloaded = match target.scratch().await {
                    Ok(file) => download(&registry, &layer, file, report).await,
                    Err(error) => Err(named(&image, None, error)),
                };
                let _ = sender.send(downloaded);
            });
        }
    }
    let mut arriving = arriving.into_iter();
    for (index, layer) in plan.layers.iter().enumerate() {
        let failed = |error| named(&plan.image, Some(&layer.digest), error);
        let blob = match &blobs {
            Blobs::Registry(_) => {
                let receiver = arriving.next().ok_or(Error::Cancelled)?;
                let file = receiver.await.map_err(|_| Error::Cancelled)??;
                Blob::whole(file).map_err(|error| failed(TargetError::Host(error)))?
            }
            Blobs::Archive(archive) => {
                let (archive, layer) = (archive.clone(), layer.clone());
                blocking(move || archive.verified(&layer)).await?
            }
        };
        import.unpack(blob, *plan.config.diff_ids()[index].bytes()).await.map_err(failed)?;
        let _ = reports.try_send(Report::Unpacked(index));
    }
    import.publish().await.map_err(|error| named(&plan.image, None, error))
}

fn named(image: &str, layer: Option<&Digest>, error: TargetError) -> Error {
    let image = image.to_owned();
    let error = match error {
        TargetError::Layer(error) => error,
        TargetError::Host(error)
            if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            LayerError::Full
        }
        TargetError::Host(error) => return Error::Target(error),
    };
    match error {
        LayerError::Invalid(reason) => {
            let reason = match layer {
                Some(layer) => format!("layer {layer}: {reason}"),
                None => reason,
            };
            Error::Invalid { image, reason }
        }
        LayerError::TooLarge(what, limit) => Error::TooLarge { image, what, limit },
        LayerError::Full => Error::Full { image },
        LayerError::Cancelled => Error::Cancelled,
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.unwrap_or(Err(Error::Cancelled))
}
