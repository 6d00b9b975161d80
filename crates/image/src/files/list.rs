//! Listing a directory, level by level.

use std::collections::VecDeque;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, readlinkat, statat};

use super::{Entry, FileError, FileTree, Result, describe, failed, text};

/// Maximum number of entries in one answer.
const MAX_ENTRIES: usize = 50_000;
/// Maximum length of all paths and targets of links in one answer as JSON, bytes: a sandbox chooses how long they are.
const MAX_TEXTS: usize = 8 << 20;

impl FileTree {
    /// Lists the entries below the directory `path`, down to `depth` levels; 1 lists its own entries only. A directory comes
    /// before its entries, and names are sorted. Entries that disappear meanwhile are left out.
    pub fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut texts = 0;
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
                let path_here = format!("{directory}/{}", text(name.to_bytes().to_vec()));
                let entry = describe(&stat, &path_here, target.map(|target| text(target.into_bytes())));
                texts += json_length(&entry.path) + entry.target.as_deref().map_or(0, json_length);
                here.push(entry);
                if texts > MAX_TEXTS {
                    let limit = MAX_TEXTS >> 20;
                    let why = format!(
                        "the paths of the entries below '{path}' take more than {limit} MiB, ask for fewer levels"
                    );
                    return Err(FileError::Refused(why));
                }
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

/// Length of a text in JSON, bytes, without its quotes.
fn json_length(text: &str) -> usize {
    let escaped = |byte| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}
