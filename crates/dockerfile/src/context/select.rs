//! Files of the context that a source names, with Docker's rules for links, wildcards and directories.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use super::entry::{Content, Entry};
use super::{Context, Selection};
use crate::error::{Error, Result};
use crate::ignore::Ignore;
use crate::mode::{changed, octal};
use crate::pattern::{has_wildcard, path as path_pattern, unescaped};
use crate::plan::Copy;

/// Links that are followed in a path.
const MAX_LINKS: usize = 40;

impl Context {
    /// The files that a source of a `COPY` or `ADD` names.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    pub fn select(&self, copy: &Copy, source: &str) -> Result<Selection> {
        let excluded = Ignore::new(copy.exclude.iter().map(String::as_str))?;
        let selection = if copy.parents {
            self.with_parents(source, &excluded)?
        } else {
            self.without_parents(source, &excluded, copy.destination.ends_with('/'))?
        };
        with_mode(selection, copy.mode.as_deref())
    }

    fn without_parents(&self, source: &str, excluded: &Ignore, is_directory: bool) -> Result<Selection> {
        let cleaned = relative(source);
        if !has_wildcard(&cleaned) {
            return self.plain(&unescaped(&cleaned), excluded);
        }
        let matches = self.matches(source, &cleaned)?;
        let mut found = Vec::new();
        for path in &matches {
            found.push((path, self.collect(path, excluded)?));
        }
        found.retain(|(_, entries)| !entries.is_empty());
        let is_file = |entries: &[Entry]| entries.len() == 1 && entries[0].content != Content::Directory;
        let are_files = found.iter().all(|(_, entries)| is_file(entries));
        let Some((last, _)) = found.last() else { return Err(self.nothing(source)) };
        if are_files && found.len() == 1 && !is_directory {
            let source = (*last).clone();
            return Ok(Selection { source, entries: found.remove(0).1, into_directory: false });
        }
        let (parent, name) = cleaned.rsplit_once('/').unwrap_or(("", &cleaned));
        let is_simple = are_files && !has_wildcard(parent) && !name.contains("**");
        if is_simple {
            let entries = sorted(found.into_iter().flat_map(|(_, entries)| entries).collect());
            return Ok(Selection { source: cleaned.clone(), entries, into_directory: true });
        }
        // Docker puts each file, and the contents of each directory, into the destination.
        let root: String = cleaned.chars().map(|c| if "*?[]\\".contains(c) { '_' } else { c }).collect();
        let mut entries = Vec::new();
        for (path, of_path) in found {
            let is_file = is_file(&of_path);
            for mut entry in of_path {
                let below = match is_file {
                    true => path.rsplit('/').next().unwrap_or(path),
                    false => {
                        entry.path.strip_prefix(path.as_str()).unwrap_or(&entry.path).trim_start_matches('/')
                    }
                };
                if below.is_empty() {
                    continue;
                }
                entry.path = format!("{root}/{below}");
                entries.push(entry);
            }
        }
        entries.push(directory(root.clone()));
        Ok(Selection { source: root, entries: sorted(entries), into_directory: true })
    }

    /// `COPY --parents`: paths stay as they are, below the part before `/./`.
    fn with_parents(&self, source: &str, excluded: &Ignore) -> Result<Selection> {
        let pivot = match source.split_once("/./") {
            Some((base, _)) => relative(base),
            None => ".".to_owned(),
        };
        let cleaned = relative(source);
        let matches = match has_wildcard(&cleaned) {
            true => self.matches(source, &cleaned)?,
            false => vec![unescaped(&cleaned)],
        };
        let mut entries = Vec::new();
        let mut above = BTreeSet::new();
        for path in &matches {
            let prefix = if pivot == "." { String::new() } else { format!("{pivot}/") };
            let below = path.strip_prefix(&prefix).unwrap_or(path);
            above.extend(below.match_indices('/').map(|(at, _)| format!("{prefix}{}", &below[..at])));
            entries.extend(self.collect(path, excluded)?);
        }
        for path in above {
            if !entries.iter().any(|entry| entry.path == path) {
                let real = self.root.join(&path);
                let metadata = metadata(&real)?;
                entries.extend(Entry::of(path, &real, &metadata)?);
            }
        }
        if entries.is_empty() {
            return Err(self.nothing(source));
        }
        Ok(Selection { source: pivot, entries: sorted(entries), into_directory: true })
    }

    fn plain(&self, path: &str, excluded: &Ignore) -> Result<Selection> {
        let entries = self.collect(path, excluded)?;
        if entries.is_empty() {
            return Err(self.nothing(path));
        }
        Ok(Selection { source: path.to_owned(), entries: sorted(entries), into_directory: false })
    }

    /// The entries of one path: a file, or a directory with what is below it. A link is followed; links below are kept.
    fn collect(&self, path: &str, excluded: &Ignore) -> Result<Vec<Entry>> {
        let Some(real) = self.resolve(path)? else { return Err(self.nothing(path)) };
        let metadata = metadata(&real)?;
        let below = real.strip_prefix(&self.root).unwrap_or(Path::new("")).to_string_lossy().into_owned();
        let is_root = below.is_empty();
        let mut entries = Vec::new();
        let is_left_out = !is_root && self.ignore.matches(&below);
        if metadata.is_dir() {
            if !is_left_out {
                entries.extend(Entry::of(path.to_owned(), &real, &metadata)?);
            }
            if !is_left_out || self.ignore.may_include_below(&below) {
                let walk = Walk { context: self, excluded };
                walk.directory(&real, &below, path, "", &mut entries)?;
            }
        } else {
            let name = path.rsplit('/').next().unwrap_or(path);
            if !is_left_out && !excluded.matches(name) && !excluded.matches(path) {
                entries.extend(Entry::of(path.to_owned(), &real, &metadata)?);
            }
        }
        Ok(entries)
    }

    /// The real path of a path of the context, with the context as root for links; `None` if there is nothing.
    fn resolve(&self, path: &str) -> Result<Option<PathBuf>> {
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut real = self.root.clone();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    if real != self.root {
                        real.pop();
                    }
                    continue;
                }
                part => real.push(part),
            }
            let Ok(metadata) = std::fs::symlink_metadata(&real) else { return Ok(None) };
            if !metadata.is_symlink() {
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::new(format!("`{path}` has too many symbolic links")));
            }
            let target = std::fs::read_link(&real).map_err(|error| failed("read", &real, &error))?;
            let Some(target) = target.to_str() else { return Ok(None) };
            real.pop();
            if target.starts_with('/') {
                real.clone_from(&self.root);
            }
            rest.extend(target.split('/').rev().map(str::to_owned));
        }
        Ok(Some(real))
    }

    /// The paths that a pattern matches, in order. Nothing below a directory that matches is searched.
    fn matches(&self, source: &str, pattern: &str) -> Result<Vec<String>> {
        let regex = path_pattern(pattern).map_err(|error| Error::new(error.to_string()))?;
        let fixed: Vec<&str> = pattern.split('/').take_while(|part| !has_wildcard(part)).collect();
        let base = unescaped(&fixed.join("/"));
        let depth = (!pattern.contains("**")).then(|| pattern.split('/').count());
        let mut found = Vec::new();
        let mut directories = vec![base];
        while let Some(directory) = directories.pop() {
            let Some(real) = self.resolve(&directory)?.filter(|real| real.is_dir()) else { continue };
            for name in names(&real)? {
                let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
                let Some(real) = self.resolve(&path)? else { continue };
                let is_left_out = self.ignore.matches(&path);
                let may_descend = !is_left_out || self.ignore.may_include_below(&path);
                if regex.is_match(&path) && (!is_left_out || (real.is_dir() && may_descend)) {
                    found.push(path);
                } else if real.is_dir()
                    && may_descend
                    && depth.is_none_or(|depth| path.split('/').count() < depth)
                {
                    directories.push(path);
                }
            }
        }
        if found.is_empty() {
            return Err(self.nothing(source));
        }
        found.sort();
        Ok(found)
    }

    fn nothing(&self, source: &str) -> Error {
        let error =
            Error::new(format!("no files match `{source}` in the build context `{}`", self.root.display()));
        let exists = self.resolve(&unescaped(&relative(source))).is_ok_and(|real| real.is_some());
        match self.ignore.file() {
            Some(file) if exists || has_wildcard(source) => {
                error.hint(format!("`{}` may leave them out", file.display()))
            }
            _ => error.hint("paths are relative to the build context, the directory given to the command"),
        }
    }
}

struct Walk<'w> {
    context: &'w Context,
    excluded: &'w Ignore,
}

impl Walk<'_> {
    /// Adds what a directory holds. Paths: `real` on this machine, `below` in the context, `path` in the archive, `inside` in the
    /// source.
    fn directory(
        &self,
        real: &Path,
        below: &str,
        path: &str,
        inside: &str,
        out: &mut Vec<Entry>,
    ) -> Result<()> {
        let join = |base: &str, name: &str| match base {
            "" | "." => name.to_owned(),
            base => format!("{base}/{name}"),
        };
        for name in names(real)? {
            let real = real.join(&name);
            let (below, path, inside) = (join(below, &name), join(path, &name), join(inside, &name));
            let metadata = metadata(&real)?;
            let is_left_out = self.context.ignore.matches(&below) || self.excluded.matches(&inside);
            if !is_left_out {
                out.extend(Entry::of(path.clone(), &real, &metadata)?);
            }
            let may_include =
                || self.context.ignore.may_include_below(&below) || self.excluded.may_include_below(&inside);
            if metadata.is_dir() && (!is_left_out || may_include()) {
                self.directory(&real, &below, &path, &inside, out)?;
            }
        }
        Ok(())
    }
}

/// The path of a source from the root of the context, which it cannot leave; `.` for the root.
fn relative(source: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in source.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let entries =
        std::fs::read_dir(directory).map_err(|error| failed("read the directory", directory, &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("read the directory", directory, &error))?;
        let name = entry.file_name().into_string();
        names.push(name.map_err(|name| {
            Error::new(format!("the file name {name:?} in `{}` is not UTF-8", directory.display()))
        })?);
    }
    names.sort();
    Ok(names)
}

fn metadata(path: &Path) -> Result<Metadata> {
    std::fs::symlink_metadata(path).map_err(|error| failed("read", path, &error))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(format!("failed to {what} `{}`: {error}", path.display()))
}

fn directory(path: String) -> Entry {
    Entry { path, mode: 0o40_755, modified: 0, content: Content::Directory }
}

/// Entries in order of their paths; of several with one path, the last.
fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.reverse();
    entries.sort_by(|a, b| (a.path != ".", &a.path).cmp(&(b.path != ".", &b.path)));
    entries.dedup_by(|later, earlier| later.path == earlier.path);
    entries
}

/// Applies symbolic changes of modes, which the step cannot express.
fn with_mode(mut selection: Selection, mode: Option<&str>) -> Result<Selection> {
    let Some(changes) = mode.filter(|mode| octal(mode).is_none()) else { return Ok(selection) };
    for entry in &mut selection.entries {
        if !matches!(entry.content, Content::Link(_)) {
            let is_directory = entry.content == Content::Directory;
            entry.mode = changed(changes, entry.mode, is_directory)
                .ok_or_else(|| Error::new(format!("invalid mode `{changes}`")))?;
        }
    }
    Ok(selection)
}

#[cfg(test)]
mod tests;
