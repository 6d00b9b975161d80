//! What is below a directory.

use std::collections::VecDeque;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, readlinkat, statat};

use super::{Entry, Result, Volume, VolumeError, describe, failed, text};

/// Entries of one answer.
const MOST: usize = 50_000;

impl Volume {
    /// The entries below the directory `path`, down to `depth` levels; 1 is its own entries only. Directories come before
    /// what is in them, names in order. What disappears meanwhile is left out.
    pub fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut ahead = VecDeque::from([(path.trim_end_matches('/').to_owned(), depth)]);
        let mut is_first = true;
        while let Some((directory, left)) = ahead.pop_front() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = match self.resolve(&directory, if is_first { flags } else { flags | OFlags::NOFOLLOW }) {
                Ok(fd) => fd,
                Err(error) if is_first => return Err(error),
                Err(_) => continue,
            };
            is_first = false;
            let mut here = Vec::new();
            for item in Dir::read_from(&fd).map_err(failed("read a directory", &directory))? {
                let item = item.map_err(failed("read a directory", &directory))?;
                let name = item.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                let Ok(stat) = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
                let target = if is_link { readlinkat(&fd, name, Vec::new()).ok() } else { None };
                let path = format!("{directory}/{}", text(name.to_bytes().to_vec()));
                here.push(describe(&stat, &path, target.map(|target| text(target.into_bytes()))));
                if found.len() + here.len() > MOST {
                    let why = format!("more than {MOST} entries are below '{path}', ask for fewer levels");
                    return Err(VolumeError::Refused(why));
                }
            }
            here.sort_by(|a, b| a.path.cmp(&b.path));
            if left > 1 {
                let below = here.iter().filter(|entry| entry.kind == super::EntryKind::Directory);
                ahead.extend(below.map(|entry| (entry.path.clone(), left - 1)));
            }
            found.append(&mut here);
        }
        Ok(found)
    }
}
