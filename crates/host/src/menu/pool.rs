//! Requests for the storage pool: layers, snapshots, volumes as a whole.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::fcntl_setpipe_size;
use sandcove_image::LayerStore;
use sandcove_image::oci::{self, Exported};

use super::objects::Object;
use super::{Menu, Result, blocking, checks, done};
use crate::failure::Failure;
use crate::message::{Answer, Number, Request, Sizes};
use crate::space::Counted;

/// Size of the pieces in which an archive is written, and of the pipe that takes them, bytes.
const PIECE: usize = 256 << 10;

impl Menu {
    pub(super) async fn in_pool(&self, request: Request) -> Result {
        let backend = &self.backend;
        Ok(match request {
            Request::Charged(account) => Answer::Charged(backend.charged_bytes(account).await).into(),
            Request::DeleteSnapshot(name) => {
                backend.delete_snapshot(checks::plain(&name)?).await.map(done)?
            }
            Request::HasSnapshot(name) => Answer::Flag(backend.has_snapshot(checks::plain(&name)?)).into(),
            Request::PublishLayer { snapshot, layer } => {
                let (snapshot, layer) = (checks::plain(&snapshot)?, checks::plain(&layer)?);
                if !layer.starts_with(LayerStore::WRITTEN_PREFIX) {
                    return Err(Failure::refused("a snapshot does not become a layer with this name"));
                }
                backend.publish_layer(snapshot, layer).await.map(done)?
            }
            Request::RemoveLayer(name) => self.remove_layer(name).await?,
            Request::HasLayer(path) => {
                checks::layer(&path)?;
                Answer::Flag(path.to_str().is_some_and(|path| backend.has_layer(path))).into()
            }
            Request::LayerNames => Answer::Names(backend.layer_names()).into(),
            Request::CollectLayers(used) => Answer::Names(self.collect(used).await?).into(),
            Request::Measure { snapshots, layers } => self.measure(snapshots, layers).await?,
            Request::PoolSpace => {
                let directory = backend.layer_dir();
                Answer::Space(blocking(move || sandcove_isolate::disk_space(&directory)).await?).into()
            }
            Request::OpenFiles { layers, files } => {
                checks::files(&files)?;
                layers.iter().try_for_each(|path| checks::layer(path))?;
                let layers: Option<Vec<String>> =
                    layers.into_iter().map(|path| path.into_os_string().into_string().ok()).collect();
                let layers = layers.ok_or_else(|| Failure::refused("a path in a request is not text"))?;
                self.hold(Answer::Done, Object::Files(backend.open_files(&layers, &files).await?))?
            }
            Request::CreateVolume { name, size_mib } => {
                backend.create_volume(checks::plain(&name)?, size_mib).await.map(done)?
            }
            Request::DeleteVolume(name) => backend.delete_volume(checks::plain(&name)?).await.map(done)?,
            Request::VolumeNames => {
                let directory = backend.volume_dir();
                Answer::Names(blocking(move || Ok::<_, Failure>(names(&directory))).await?).into()
            }
            _ => return Err(Failure::refused("this is no request for the pool")),
        })
    }

    /// Writes open files as an archive to the pipe `out`.
    pub(super) async fn export(&self, number: Number, image: Exported, out: Option<OwnedFd>) -> Result {
        let (Some(Object::Files(files)), Some(out)) = (self.objects.take(number), out) else {
            return Err(Failure::refused("there are no such files, or nothing to write them to"));
        };
        blocking(move || write_archive(&files, &image, out)).await.map(done)
    }

    async fn remove_layer(&self, name: String) -> Result {
        let name = checks::plain(&name)?.to_owned();
        if name.starts_with(LayerStore::WRITTEN_PREFIX) {
            return Ok(self.backend.remove_layer(&name).await.map(done)?);
        }
        let directory = self.backend.layer_dir();
        let remove = move || LayerStore::open(&directory)?.remove(&name);
        blocking(move || remove().map_err(io::Error::other)).await.map(done)
    }

    async fn collect(&self, used: HashSet<String>) -> Result<Vec<String>> {
        let directory = self.backend.layer_dir();
        let collect = move || LayerStore::open(&directory)?.collect(&used);
        blocking(move || collect().map_err(io::Error::other)).await
    }

    async fn measure(&self, snapshots: Vec<String>, unused: HashSet<String>) -> Result {
        for name in snapshots.iter().chain(&unused) {
            checks::plain(name)?;
        }
        let (layers_at, snapshots_at) = (self.backend.layer_dir(), self.backend.snapshot_dir());
        let (kept, mut layers): (Vec<String>, Vec<String>) =
            self.backend.layer_names().into_iter().partition(|name| !unused.contains(name));
        layers.sort();
        let measure = move || {
            let mut counted = Counted::default();
            let going: HashSet<&String> = snapshots.iter().collect();
            for name in names(&snapshots_at).iter().filter(|name| !going.contains(name)) {
                counted.add(&snapshots_at.join(name));
            }
            for layer in kept.iter().filter(|layer| layer.starts_with(LayerStore::WRITTEN_PREFIX)) {
                counted.add(&layers_at.join(layer));
            }
            let mut sized = |directory: &Path, names: Vec<String>| -> Vec<(String, u64)> {
                names.into_iter().map(|name| (name.clone(), counted.add(&directory.join(name)))).collect()
            };
            let snapshots = sized(&snapshots_at, snapshots);
            Sizes { snapshots, layers: sized(&layers_at, layers) }
        };
        let sizes = blocking(move || Ok::<_, Failure>(measure())).await?;
        Ok(Answer::Sizes(sizes).into())
    }
}

/// Names of what is in a directory; none if it is missing.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn write_archive(files: &OwnedFd, image: &Exported, out: OwnedFd) -> io::Result<()> {
    // A smaller pipe only takes more turns.
    let _ = fcntl_setpipe_size(&out, PIECE);
    let out = File::from(out);
    let has_reader = || {
        let mut polled = [PollFd::new(&out, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().contains(PollFlags::ERR)
    };
    let mut writer = BufWriter::with_capacity(PIECE, &out);
    let written = oci::export(files, image, &mut writer, &has_reader).and_then(|()| writer.flush());
    // What is buffered after an error is not written.
    let _ = writer.into_parts();
    written
}
