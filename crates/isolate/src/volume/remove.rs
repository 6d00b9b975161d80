//! Removing trees that others made, and may still be changing: as deep as they like, with links wherever they like.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{Result, Volume, failed};

/// How often a directory is emptied that others keep filling.
const ATTEMPTS: u32 = 8;

impl Volume {
    /// Removes what is at `path`, with everything below it. It is gone for everybody at once, and then taken apart.
    /// `name` must be unused.
    pub fn remove(&self, path: &str, name: String) -> Result<()> {
        let (parent, last) = self.parent(path)?;
        renameat(&parent, &last, &self.work, &name).map_err(failed("remove", path))?;
        if let Err(errno) = self.take_apart(name) {
            // Out of sight already; the rest goes when the volume is next cleaned.
            tracing::warn!(error = %errno, "a removed tree was not taken apart");
        }
        Ok(())
    }

    /// Removes what interrupted uploads and removals have left.
    pub fn clean(&self) -> std::io::Result<()> {
        let work =
            openat(&self.work, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for item in Dir::read_from(&work)? {
            let item = item?;
            let name = item.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                self.take_apart(name)?;
            }
        }
        Ok(())
    }

    /// Directories inside are moved up before they are emptied, so that no depth needs more than a few descriptors, and
    /// no path is ever followed.
    fn take_apart(&self, name: String) -> rustix::io::Result<()> {
        let mut found = 0u32;
        let mut ahead = vec![(name.clone(), ATTEMPTS)];
        while let Some((next, attempts)) = ahead.pop() {
            match unlinkat(&self.work, &next, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = openat(&self.work, &next, flags, Mode::empty())?;
            for item in Dir::read_from(&directory)? {
                let item = item?;
                let inner = item.file_name();
                if inner == c"." || inner == c".." {
                    continue;
                }
                match unlinkat(&directory, inner, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR | Errno::PERM) => {
                        found += 1;
                        let up = format!("{name}.{found}");
                        renameat(&directory, inner, &self.work, &up)?;
                        ahead.push((up, ATTEMPTS));
                    }
                    Err(errno) => return Err(errno),
                }
            }
            match unlinkat(&self.work, &next, AtFlags::REMOVEDIR) {
                Ok(()) => {}
                Err(Errno::NOTEMPTY) if attempts > 1 => ahead.push((next, attempts - 1)),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
