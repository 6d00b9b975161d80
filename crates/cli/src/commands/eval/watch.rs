//! The files that a run is made from, and whether any of them has changed.
//!
//! Files are polled a few times a second. Not every file system notifies of changes, and editors that replace files would have to be
//! followed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandcove_eval::reading::files;
use serde_json::Value;

/// The time between two looks at the files.
const PERIOD: Duration = Duration::from_millis(250);

/// The extensions of configurations, prompts, tests and scripts.
const EXTENSIONS: &[&str] = &[
    "yaml", "yml", "json", "jsonl", "csv", "tsv", "xlsx", "txt", "md", "j2", "env", "py", "js", "cjs", "mjs",
    "ts", "cts", "mts", "sh", "rb", "go", "pl", "bash",
];

/// The version of a file: its inode, when it was last changed in any way, and its size. The time of the last write alone would not do:
/// programs that copy or unpack files set it.
type Version = (u64, i64, i64, u64);

/// The directories that hold what a run is made from; a script may import any file beside it.
#[derive(Debug, Default)]
pub struct WatchedFiles {
    directories: BTreeSet<PathBuf>,
    results: BTreeSet<PathBuf>,
    seen: BTreeMap<PathBuf, Version>,
}

impl WatchedFiles {
    /// Watches the directories of configurations and other files that the command line names.
    pub fn new(directory: &Path, named: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut sources = Self::default();
        sources.add(directory);
        named.into_iter().for_each(|path| sources.add(&directory.join(path)));
        sources
    }

    fn add(&mut self, path: &Path) {
        let directory = if path.is_dir() { Some(path) } else { path.parent() };
        self.directories.extend(directory.and_then(|directory| directory.canonicalize().ok()));
    }

    /// Adds all that a configuration refers to, relative to `base`.
    pub fn refer(&mut self, base: &Path, config: &Value) {
        match config {
            Value::String(text) => {
                // Longer ones are no paths.
                let shaped = text.len() < 500 && !text.contains('\n') && text.contains(['.', '/']);
                if shaped {
                    let (path, _) = files::split_name(text);
                    let path = path.split(['*', '?', '[', '{']).next().unwrap_or_default();
                    self.add(&base.join(path));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.refer(base, item)),
            Value::Object(map) => map.values().for_each(|value| self.refer(base, value)),
            _ => {}
        }
    }

    /// Excludes files that the run itself writes.
    pub fn leave_out<'a>(&mut self, results: impl IntoIterator<Item = &'a String>) {
        for path in results.into_iter().filter_map(|path| std::path::absolute(path).ok()) {
            if let (Some(Ok(directory)), Some(name)) =
                (path.parent().map(Path::canonicalize), path.file_name())
            {
                self.results.insert(directory.join(name));
            }
        }
    }

    /// Takes the current versions for those that the run is made from.
    pub fn remember(&mut self) {
        self.seen = self.versions();
    }

    fn versions(&self) -> BTreeMap<PathBuf, Version> {
        let entries =
            self.directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten();
        let mut versions = BTreeMap::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
            let hidden = path.file_name().is_some_and(|name| name == ".env");
            if !hidden && !extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
                continue;
            }
            if let Ok(about) = std::fs::metadata(&path)
                && about.is_file()
                && !self.results.contains(&path)
            {
                versions.insert(path, (about.ino(), about.ctime(), about.ctime_nsec(), about.len()));
            }
        }
        versions
    }

    /// Waits until files differ from those of the run and have stayed so for a moment: editors write in several steps. Returns
    /// those that differ.
    pub async fn changed(&mut self) -> Vec<PathBuf> {
        let mut last = self.versions();
        loop {
            tokio::time::sleep(PERIOD).await;
            let now = self.versions();
            if now == last && now != self.seen {
                let differs = |path: &&PathBuf| now.get(*path) != self.seen.get(*path);
                let changed: BTreeSet<PathBuf> =
                    now.keys().chain(self.seen.keys()).filter(differs).cloned().collect();
                self.seen = now;
                return changed.into_iter().collect();
            }
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn files_beside_what_is_named_are_watched() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        std::fs::create_dir(at("checks")).unwrap();
        std::fs::write(at("checks/check.py"), "").unwrap();
        std::fs::write(at("out.json"), "").unwrap();
        let mut sources = WatchedFiles::new(directory.path(), []);
        sources.refer(
            directory.path(),
            &json!({"tests": [{"assert": [{"value": "file://checks/check.py:f"}]}]}),
        );
        sources.leave_out(&[at("out.json").to_string_lossy().into_owned()]);
        sources.remember();
        for (name, text) in [("checks/check.py", "1"), ("checks/helper.py", "2"), ("prompt.txt", "3")] {
            std::fs::write(at("out.json"), text).unwrap();
            std::fs::write(at("binary.bin"), text).unwrap();
            std::fs::write(at(name), text).unwrap();
            assert_eq!(sources.changed().await, [at(name)]);
        }
        // Another text of the same size and time is another version.
        let written = std::fs::metadata(at("prompt.txt")).unwrap().modified().unwrap();
        std::fs::write(at("prompt.txt"), "4").unwrap();
        std::fs::File::options().write(true).open(at("prompt.txt")).unwrap().set_modified(written).unwrap();
        assert_eq!(sources.changed().await, [at("prompt.txt")]);
        std::fs::remove_file(at("prompt.txt")).unwrap();
        assert_eq!(sources.changed().await, [at("prompt.txt")]);
    }
}
