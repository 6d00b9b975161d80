//! Listing a directory, level by level.

use std::collections::VecDeque;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, readlinkat, statat};

use super::{Entry, FileError, FileTree, Result, describe, failed, text};

/// Maximum number of entries in one answer.
const MAX_ENTRIES: usize = 50_000;

impl FileTree {
    /// Lists the entries below the directory `path`, down to `depth` levels; 1 lists its own entries only. A directory comes
    /// before its entries, and names are sorted. Entries that disappear meanwhile are left out.
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
                if found.len() + here.len() > MAX_ENTRIES {
                    let why =
                        format!("more than {MAX_ENTRIES} entries are below '{path}', ask for fewer levels");
                    return Err(FileError::Refused(why));
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
