//! Numbers of files. Each subvolume counts its files from the same number on, and an overlay shows these numbers with one device number for
//! all layers that are in one file system. Two files would look like one: `cp` refuses to copy one over the other, the dynamic loader takes a
//! library for one that is loaded already, CRIU stores one in the place of the other. So a new upper is a copy of an empty subvolume, the
//! *blank*, which counts from a number on that no file of a layer has.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};

use super::delete_subvolume;
use super::quota::Quota;
use crate::{Error, sys};

/// Directory of the blank in the pool, its name there, and that of the next one while it is made.
const DIRECTORY: &str = "blank";
const CURRENT: &str = "current";
const NEXT: &str = "next";
/// The directory in the blank, and so in its copies, that has their highest number as long as they have nothing else.
const FIRST: &str = "first";
/// Files of layers for which a blank lasts, beyond those that there are: a number takes 8 microseconds to use up.
const MARGIN: u64 = 1 << 14;
/// Numbers that are skipped for layers at most. Only a file system that others use too gets further between two layers: the last one has higher
/// numbers then than an upper gets to.
const MAX_SKIPPED: u64 = 1 << 20;

/// The blank of a pool.
#[derive(Debug)]
pub(super) struct Blank {
    directory: PathBuf,
    quota: Quota,
    /// Held for reading while the blank is copied, and for writing while it is replaced.
    lock: RwLock<()>,
}

/// State of the blank that there is.
struct Current {
    /// From which number on copies count.
    first: u64,
    /// Time of the last change of the layers when the number was found to be right: that of the subvolume.
    layers_changed: SystemTime,
}

impl Blank {
    /// The blank of the pool in `root`, made or not.
    pub(super) fn of(root: &Path, quota: Quota) -> Self {
        Self { directory: root.join(DIRECTORY), quota, lock: RwLock::new(()) }
    }

    /// Creates the subvolume `name` in `parent`. It counts from a number above those in the directory `layers`, and not below `lowest`.
    /// [`remove_first`] follows when it has other files.
    pub(super) fn copy(&self, layers: &Path, lowest: u64, parent: &File, name: &str) -> io::Result<()> {
        loop {
            let changed = std::fs::metadata(layers)?.modified()?;
            let is_right = |current: Current| current.first >= lowest && current.layers_changed == changed;
            let reading = self.lock.read().unwrap_or_else(PoisonError::into_inner);
            if self.current()?.is_some_and(is_right) {
                let current = File::open(self.directory.join(CURRENT))?;
                return sys::copy_subvolume(current.as_fd(), parent.as_fd(), name, false);
            }
            drop(reading);
            let _writing = self.lock.write().unwrap_or_else(PoisonError::into_inner);
            let first = self.current()?.map(|current| current.first);
            let of_layers = next_number(layers)?;
            let is_near = of_layers.saturating_sub(first.unwrap_or_default()) <= MAX_SKIPPED;
            let needed = if is_near { of_layers } else { 0 };
            if first.is_none_or(|first| first < needed.max(lowest)) {
                self.renew(if is_near { of_layers + MARGIN } else { 0 }.max(lowest))?;
            }
            File::open(self.directory.join(CURRENT))?.set_modified(changed)?;
        }
    }

    fn current(&self) -> io::Result<Option<Current>> {
        let current = self.directory.join(CURRENT);
        let first = match std::fs::metadata(current.join(FIRST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            first => first?.ino(),
        };
        Ok(Some(Current { first, layers_changed: std::fs::metadata(current)?.modified()? }))
    }

    /// Replaces the blank by one whose copies count from `number` on.
    fn renew(&self, number: u64) -> io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let (parent, current) = (File::open(&self.directory)?, self.directory.join(CURRENT));
        let (next, first) = (self.directory.join(NEXT), self.directory.join(NEXT).join(FIRST));
        // Of one that was killed here.
        self.delete(NEXT)?;
        if current.exists() {
            sys::copy_subvolume(File::open(&current)?.as_fd(), parent.as_fd(), NEXT, false)?;
            remove_first(&next)?;
        } else {
            sys::create_subvolume(parent.as_fd(), NEXT)?;
        }
        while next_number(&next)? < number {}
        std::fs::create_dir(&first)?;
        if current.exists() {
            renameat_with(CWD, &next, CWD, &current, RenameFlags::EXCHANGE)?;
            self.delete(NEXT)
        } else {
            std::fs::rename(&next, &current)
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        if !self.directory.join(name).exists() {
            return Ok(());
        }
        match delete_subvolume(&self.directory, name, self.quota) {
            Err(Error::Path { source, .. }) => Err(source),
            deleted => deleted.map_err(io::Error::other),
        }
    }

    /// Deletes the blank.
    pub(super) fn erase(root: &Path) {
        let directory = root.join(DIRECTORY);
        for name in [CURRENT, NEXT] {
            let _ = delete_subvolume(&directory, name, Quota::Off);
        }
    }
}

/// Removes what a copy of a blank has from it.
pub(super) fn remove_first(copy: &Path) -> io::Result<()> {
    match std::fs::remove_dir(copy.join(FIRST)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The number that a new file gets in the subvolume of `directory`: that of a file without a name, which is gone at once.
pub(super) fn next_number(directory: &Path) -> io::Result<u64> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::RUSR)?;
    Ok(rustix::fs::fstat(file)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::image;

    #[test]
    fn a_copy_counts_from_where_no_layer_has_a_file() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let data_dir = tempfile::tempdir().unwrap();
        let root = data_dir.path().join("pool");
        let layers = root.join("layers");
        std::fs::create_dir(&root).unwrap();
        image::mount(data_dir.path(), &root, Some(1)).unwrap();
        let numbers = (|| -> io::Result<Vec<u64>> {
            std::fs::create_dir(&layers)?;
            let (blank, parent) = (Blank::of(&root, Quota::Off), File::open(&root)?);
            let mut numbers = Vec::new();
            for (name, lowest) in [("a", 0), ("b", 0), ("c", 40_000)] {
                numbers.push(next_number(&layers)?);
                blank.copy(&layers, lowest, &parent, name)?;
                numbers.push(next_number(&root.join(name))?);
            }
            // A blank that was opened again is used as long as no layer has come, whatever else is created.
            while next_number(&layers)? < 100_000 {}
            for name in ["d", "e", "f"] {
                Blank::of(&root, Quota::Off).copy(&layers, 0, &parent, name)?;
                numbers.push(next_number(&root.join(name))?);
                std::fs::create_dir(layers.join(name))?;
                // One that was killed while it renewed the blank has left this, and one before has left none.
                if name == "e" {
                    sys::delete_subvolume(File::open(&blank.directory)?.as_fd(), CURRENT)?;
                } else {
                    sys::create_subvolume(File::open(&blank.directory)?.as_fd(), NEXT)?;
                }
            }
            Ok(numbers)
        })();
        image::unmount(&root).unwrap();
        let [layer, a, _, b, _, c, d, e, f] = numbers.unwrap()[..] else { unreachable!("nine numbers") };
        assert!(a >= layer + MARGIN && a == b, "{layer} {a} {b}");
        assert!((40_000..41_000).contains(&c) && c == d, "{c} {d}");
        assert!(e >= 100_000 + MARGIN && f >= 100_000 + MARGIN, "{e} {f}");
    }
}
