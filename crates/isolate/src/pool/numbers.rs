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

use rustix::fs::{Mode, OFlags};

use super::delete_subvolume;
use super::quota::Quota;
use crate::sys;

/// Directory of the blank in the pool, its name there, and that of the next one while it is made.
const DIRECTORY: &str = "blank";
const CURRENT: &str = "current";
const NEXT: &str = "next";
/// The directory in the blank, and so in its copies, that has their highest number as long as they have nothing else.
const FIRST: &str = "first";
/// Files of layers for which a blank lasts, beyond those that there are: a number takes 8 microseconds to use up.
const MARGIN: u64 = 1 << 14;
/// Highest number for which a first blank is made. Only the file system of a host has got further before it had a pool: its layers have
/// higher numbers than uppers get to.
const MAX_FIRST: u64 = 1 << 20;

/// The blank of a pool.
#[derive(Debug)]
pub(super) struct Blank {
    directory: PathBuf,
    quota: Quota,
    /// From which number on copies count; 0 when it is not known.
    first: RwLock<u64>,
}

impl Blank {
    /// The blank of the pool in `root`, made or not.
    pub(super) fn of(root: &Path, quota: Quota) -> Self {
        let directory = root.join(DIRECTORY);
        let first = std::fs::metadata(directory.join(CURRENT).join(FIRST)).map_or(0, |first| first.ino());
        Self { directory, quota, first: RwLock::new(first) }
    }

    /// Creates the subvolume `name` in `parent`. It counts from a number above those in the directory `layers`, and not below `lowest`.
    /// [`remove_first`] follows when it has other files.
    pub(super) fn copy(&self, layers: &Path, lowest: u64, parent: &File, name: &str) -> io::Result<()> {
        loop {
            let first = self.first.read().unwrap_or_else(PoisonError::into_inner);
            if self.lasts(*first, layers, lowest)? {
                // Nobody deletes it meanwhile.
                let current = File::open(self.directory.join(CURRENT))?;
                return sys::copy_subvolume(current.as_fd(), parent.as_fd(), name, false);
            }
            drop(first);
            let mut first = self.first.write().unwrap_or_else(PoisonError::into_inner);
            if self.lasts(*first, layers, lowest)? {
                continue;
            }
            let changed = std::fs::metadata(layers)?.modified()?;
            let of_layers = next_number(layers)?;
            if *first == 0 && of_layers > MAX_FIRST {
                return sys::create_subvolume(parent.as_fd(), name);
            }
            if *first < of_layers.max(lowest) {
                *first = self.renew((of_layers + MARGIN).max(lowest))?;
            }
            File::open(self.directory.join(CURRENT))?.set_modified(changed)?;
        }
    }

    /// Whether a blank that counts from `first` is right. Its time is that of the last change of `layers` when it was found to be.
    fn lasts(&self, first: u64, layers: &Path, lowest: u64) -> io::Result<bool> {
        if first < lowest.max(1) {
            return Ok(false);
        }
        let changed = |path: &Path| std::fs::metadata(path)?.modified();
        Ok(changed(&self.directory.join(CURRENT))? == changed(layers)?)
    }

    /// Makes a blank whose copies count from `number` on, and returns the number that it has.
    fn renew(&self, number: u64) -> io::Result<u64> {
        std::fs::create_dir_all(&self.directory)?;
        let (parent, current) = (File::open(&self.directory)?, self.directory.join(CURRENT));
        let (next, first) = (self.directory.join(NEXT), self.directory.join(NEXT).join(FIRST));
        self.delete(NEXT)?;
        match File::open(&current) {
            Ok(current) => {
                sys::copy_subvolume(current.as_fd(), parent.as_fd(), NEXT, false)?;
                std::fs::remove_dir(&first)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                sys::create_subvolume(parent.as_fd(), NEXT)?;
            }
            Err(error) => return Err(error),
        }
        while next_number(&next)? < number {}
        std::fs::create_dir(&first)?;
        let reached = std::fs::metadata(&first)?.ino();
        self.delete(CURRENT)?;
        std::fs::rename(&next, &current)?;
        Ok(reached)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        if !self.directory.join(name).exists() {
            return Ok(());
        }
        delete_subvolume(&self.directory, name, self.quota).map_err(io::Error::other)
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
            // One that was opened again knows its number, and goes on when layers have got there. Others than layers may count on.
            while next_number(&layers)? < 100_000 {}
            for name in ["d", "e"] {
                Blank::of(&root, Quota::Off).copy(&layers, 0, &parent, name)?;
                numbers.push(next_number(&root.join(name))?);
                std::fs::create_dir(layers.join(name))?;
            }
            Ok(numbers)
        })();
        image::unmount(&root).unwrap();
        let [layer, a, _, b, _, c, d, e] = numbers.unwrap()[..] else { unreachable!("eight numbers") };
        assert!(a >= layer + MARGIN && a == b, "{layer} {a} {b}");
        assert!((40_000..41_000).contains(&c) && c == d && e >= 100_000 + MARGIN, "{c} {d} {e}");
    }
}
