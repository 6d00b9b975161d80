//! Memory that a sandbox has in common with the warm process that it was forked from: nine tenths of what a kernel has. It is stored once for each warm
//! process, and generations have links to it.
//!
//! What is common is decided by comparing each page with the file while the sandbox is frozen. So it does not matter what the warm process has written
//! since, and no page of one sandbox gets into another. CRIU does not see such pages (`packaging/criu/preload.c`), and its images are completed: they say
//! that the pages are in the images of a parent, as in CRIU's own incremental dumps.
//!
//! | file of a generation | content | in a view |
//! | --- | --- | --- |
//! | `pages-common.img` | the pages, a link to those of others | `parent/pages-1.img` |
//! | `common-table.img` | their addresses | `parent/table.img` |
//! | `common-processes.json` | numbers inside of the processes that have some | links to the table, `parent/pagemap-N.img` |
//!
//! Their digests are in a part of the manifest of their own: to an earlier server, which would restore the images without a parent, they are damaged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::budget::Budget;
use super::comparison::{PAGE, Pages, Process, Ranges, chunks};
use super::generation::hexadecimal;
use super::images::{MAGIC, get, messages};
use crate::criu::{Fields, Value, encode};

/// Names of the file with the pages. Those of a team's own template count as memory of each generation that has them: a team may have any number of templates.
pub(super) const PAGES: &str = "pages-common.img";
const COUNTED_PAGES: &str = "pages-template.img";
/// Names of the table of addresses, and of the list of processes.
const TABLE: &str = "common-table.img";
const PROCESSES: &str = "common-processes.json";
/// The directory of a view that CRIU looks for what is in the images of a parent, and names there.
const PARENT: &str = "parent";
const PARENT_PAGES: &str = "pages-1.img";
const PARENT_TABLE: &str = "table.img";
/// Magic numbers at the start of a table: of images, and of tables of pages.
const TABLE_MAGIC: [u32; 2] = [0x5456_4319, 0x5608_4025];
/// Fields of the first message of a table: the number of the file with the pages; and of all others: an address, an obsolete number of pages, their
/// flags, and their number.
const PAGES_NUMBER: u64 = 1;
const ADDRESS: u64 = 1;
const OBSOLETE_COUNT: u64 = 2;
const FLAGS: u64 = 4;
const COUNT: u64 = 5;
/// Flags of pages: that they are in the images of the parent, and that they are in these.
const IN_PARENT: u64 = 1;
const PRESENT: u64 = 4;

/// Links of a file of pages after which it is not used for further sandboxes: file systems allow some 65,000.
const MAX_LINKS: u64 = 50_000;
/// Maximum size of an image with the pages of a process, bytes: in memory it takes ten times as much.
const MAX_TABLE: u64 = 16 << 20;

/// Pages of a process as they were at one time, in a file that is deleted with this.
#[derive(Debug)]
pub(crate) struct Common {
    path: PathBuf,
    /// The file with the pages, and its name in generations.
    pages: File,
    name: &'static str,
    /// Digest of the pages, hexadecimal.
    digest: String,
    runs: Vec<Run>,
    /// The process whose pages they are; `None` when they come from a generation.
    source: Option<Process>,
}

/// Pages that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) addresses: Range<u64>,
    /// Position of the first one in the file, bytes.
    position: u64,
}

impl Run {
    /// Position of the page at `address` in the file, bytes.
    fn position_of(&self, address: u64) -> u64 {
        self.position + (address - self.addresses.start)
    }

    /// Number of the page at `address`, of all in the file.
    pub(super) fn index(&self, address: u64) -> usize {
        (self.position_of(address) / PAGE) as usize
    }
}

impl Common {
    /// Stores the private memory of a process, `max_bytes` at most, in the new file `path`. The process may be running. The file is `counted` as memory
    /// of each generation that links to it, or of none.
    ///
    /// # Errors
    /// If the process cannot be read, if it has more than `max_bytes`, or if the file cannot be written.
    pub(crate) fn store(source: Process, max_bytes: u64, counted: bool, path: PathBuf) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let name = if counted { COUNTED_PAGES } else { PAGES };
        let (digest, runs) = (String::new(), Vec::new());
        let mut this = Self { path, pages: file, name, digest, runs, source: Some(source) };
        this.digest = this.fill(max_bytes)?;
        // Later generations have a link to it, and write only their own files to disk.
        this.pages.sync_data()?;
        Ok(this)
    }

    /// Writes the pages of the source; returns their digest.
    fn fill(&mut self, max_bytes: u64) -> io::Result<String> {
        let Some(source) = &self.source else { return Err(io::ErrorKind::NotFound.into()) };
        let (budget, mut digest, mut position) = (Budget::start(), Sha256::new(), 0);
        let mut page = [0; PAGE as usize];
        for chunk in source.mappings()?.into_iter().flat_map(chunks) {
            if budget.is_spent() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for address in source.present(&chunk)? {
                // What is gone meanwhile is not stored, and neither is what takes no memory.
                if source.read(address, &mut page).is_err() || page.iter().all(|byte| *byte == 0) {
                    continue;
                }
                if position >= max_bytes {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                self.pages.write_all(&page)?;
                digest.update(page);
                match self.runs.last_mut() {
                    Some(run) if run.addresses.end == address => run.addresses.end += PAGE,
                    _ => self.runs.push(Run { addresses: address..address + PAGE, position }),
                }
                position += PAGE;
            }
        }
        Ok(hexadecimal(digest))
    }

    /// The pages that the generation in `from` has in common with others, linked to the new name `path`; `None` when it has none. `digests` are those of its
    /// files in common.
    pub(crate) fn of_generation(
        from: &Path,
        digests: &BTreeMap<String, String>,
        path: PathBuf,
    ) -> io::Result<Option<Self>> {
        let pages = [PAGES, COUNTED_PAGES].into_iter().find_map(|name| Some((name, digests.get(name)?)));
        let Some((name, digest)) = pages else { return Ok(None) };
        let runs = runs(&from.join(TABLE))?;
        std::fs::hard_link(from.join(name), &path)?;
        let pages = File::open(&path)?;
        Ok(Some(Self { path, pages, name, digest: digest.clone(), runs, source: None }))
    }

    /// Whether further generations may have links to the pages.
    pub(crate) fn has_room(&self) -> bool {
        self.pages.metadata().is_ok_and(|metadata| metadata.nlink() < MAX_LINKS)
    }

    /// Size of the pages, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.runs.last().map_or(0, |last| last.position_of(last.addresses.end))
    }

    /// The pages, by their addresses.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The process whose pages they are, if that is known.
    pub(super) fn source(&self) -> Option<&Process> {
        self.source.as_ref()
    }

    /// Reads pages of a run, from that at `address` on.
    pub(super) fn read(&self, run: &Run, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.pages.read_exact_at(buffer, run.position_of(address))
    }

    /// Completes the images in `directory`, in which the pages `found` are missing, and links these pages into it; returns the name and the digest of
    /// that link. `None` when no pages are missing: where what is preloaded into CRIU is that of an earlier version, CRIU has stored all.
    pub(super) fn complete(&self, directory: &Path, found: &Pages) -> io::Result<Option<(String, String)>> {
        let mut processes = Vec::new();
        for (inside, ranges) in found.values() {
            if add_to_table(&directory.join(format!("pagemap-{inside}.img")), ranges)? {
                processes.push(inside);
            }
        }
        if processes.is_empty() {
            return Ok(None);
        }
        std::fs::write(directory.join(TABLE), table(&self.runs))?;
        std::fs::write(directory.join(PROCESSES), serde_json::to_vec(&processes)?)?;
        std::fs::hard_link(&self.path, directory.join(self.name))?;
        Ok(Some((self.name.to_owned(), self.digest.clone())))
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        // What is left is deleted by the next server.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the file `name` of a generation has pages that others may have too.
pub(super) fn is_pages(name: &str) -> bool {
    [PAGES, COUNTED_PAGES].contains(&name)
}

/// Whether the file `name` of a generation is about pages in common.
pub(super) fn is_about(name: &str) -> bool {
    is_pages(name) || [TABLE, PROCESSES].contains(&name)
}

/// Puts the file `name` of the generation in `from`, which is about pages in common, into the directory `view`, where CRIU looks for it.
pub(super) fn link_into(view: &Path, from: &Path, name: &str) -> io::Result<()> {
    let parent = view.join(PARENT);
    std::fs::create_dir_all(&parent)?;
    let link = |to| std::fs::hard_link(from.join(name), parent.join(to));
    match name {
        TABLE => link(PARENT_TABLE),
        PROCESSES => {
            let processes: Vec<u32> = serde_json::from_slice(&std::fs::read(from.join(name))?)?;
            processes
                .iter()
                .try_for_each(|number| symlink(PARENT_TABLE, parent.join(format!("pagemap-{number}.img"))))
        }
        _ => link(PARENT_PAGES),
    }
}

/// The image with the addresses of `runs`.
fn table(runs: &[Run]) -> Vec<u8> {
    let mut image: Vec<u8> = TABLE_MAGIC.iter().flat_map(|number| number.to_le_bytes()).collect();
    append(&mut image, &vec![(PAGES_NUMBER, Value::Integer(1))]);
    for run in runs {
        append(&mut image, &entry(&run.addresses, PRESENT));
    }
    image
}

/// Reads what [`table`] has written.
fn runs(path: &Path) -> io::Result<Vec<Run>> {
    let mut position = 0;
    let found = messages(path)?.into_iter().skip(1).map(|message| {
        let run = Run { addresses: addresses(&message), position };
        position += run.addresses.end - run.addresses.start;
        run
    });
    Ok(found.collect())
}

/// Adds entries for the pages `ranges` to a table of CRIU, except for those that it has; returns whether there are any.
fn add_to_table(path: &Path, ranges: &[Range<u64>]) -> io::Result<bool> {
    if std::fs::metadata(path)?.len() > MAX_TABLE {
        return Err(io::Error::other("its memory is in too many pieces"));
    }
    let mut messages = messages(path)?.into_iter();
    let head = messages.next().unwrap_or_default();
    let stored: Vec<Fields> = messages.collect();
    let has: Ranges = stored.iter().map(addresses).collect();
    let missing = without(ranges, &has);
    if missing.is_empty() {
        return Ok(false);
    }
    let mut all: Vec<Fields> =
        stored.into_iter().chain(missing.iter().map(|range| entry(range, IN_PARENT))).collect();
    all.sort_by_key(|message| get(message, ADDRESS));
    let mut image = std::fs::read(path)?;
    image.truncate(MAGIC);
    append(&mut image, &head);
    for message in &all {
        append(&mut image, message);
    }
    std::fs::write(path, image).map(|()| true)
}

/// The parts of `ranges` that are in none of `others`; both are in order.
fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Ranges {
    let mut left = Ranges::new();
    let mut others = others.iter().peekable();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            while others.next_if(|other| other.end <= start).is_some() {}
            let end = others.peek().map_or(range.end, |other| other.start.clamp(start, range.end));
            if start < end {
                left.push(start..end);
            }
            start =
                others.peek().map_or(range.end, |other| if end < range.end { other.end } else { range.end });
        }
    }
    left
}

fn addresses(message: &Fields) -> Range<u64> {
    let start = get(message, ADDRESS);
    let count = match get(message, COUNT) {
        0 => get(message, OBSOLETE_COUNT),
        count => count,
    };
    start..start.saturating_add(count.saturating_mul(PAGE))
}

fn entry(range: &Range<u64>, flags: u64) -> Fields {
    let fields = [
        (ADDRESS, range.start),
        (OBSOLETE_COUNT, 0),
        (FLAGS, flags),
        (COUNT, (range.end - range.start) / PAGE),
    ];
    fields.into_iter().map(|(number, value)| (number, Value::Integer(value))).collect()
}

fn append(image: &mut Vec<u8>, message: &Fields) {
    let message = encode(message);
    image.extend_from_slice(&(message.len() as u32).to_le_bytes());
    image.extend_from_slice(&message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u64, u64)]) -> Ranges {
        all.iter().map(|(start, end)| *start..*end).collect()
    }

    #[test]
    fn what_criu_has_stored_is_not_in_the_parent_too() {
        for (all, stored, left) in [
            (vec![(0, 10)], vec![], vec![(0, 10)]),
            (vec![(0, 10)], vec![(2, 4), (6, 7)], vec![(0, 2), (4, 6), (7, 10)]),
            (vec![(0, 10), (20, 30)], vec![(0, 10), (25, 40)], vec![(20, 25)]),
            (vec![(5, 6)], vec![(0, 5), (6, 9)], vec![(5, 6)]),
            (vec![(5, 9)], vec![(0, 20)], vec![]),
        ] {
            assert_eq!(without(&ranges(&all), &ranges(&stored)), ranges(&left), "{all:?} {stored:?}");
        }
    }

    #[test]
    fn a_table_has_the_pages_of_both_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pagemap-1.img");
        let run = |start, end, position| Run { addresses: start * PAGE..end * PAGE, position };
        std::fs::write(&path, table(&[run(2, 3, 0), run(9, 12, PAGE)])).unwrap();
        assert!(add_to_table(&path, &[PAGE..4 * PAGE, 20 * PAGE..21 * PAGE]).unwrap());
        // Not again.
        assert!(!add_to_table(&path, &[PAGE..2 * PAGE, 3 * PAGE..4 * PAGE]).unwrap());
        let found: Vec<_> = messages(&path)
            .unwrap()
            .iter()
            .skip(1)
            .map(|message| (addresses(message), get(message, FLAGS)))
            .collect();
        let wanted =
            [(1, 2, IN_PARENT), (2, 3, PRESENT), (3, 4, IN_PARENT), (9, 12, PRESENT), (20, 21, IN_PARENT)];
        assert_eq!(found, wanted.map(|(start, end, flags)| (start * PAGE..end * PAGE, flags)));
    }

    #[test]
    fn a_generation_keeps_what_is_common_after_its_owner_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let own = || Process::open(std::process::id()).unwrap();
        let common = Common::store(own(), u64::MAX, false, at("first")).unwrap();
        for name in ["generation", "view"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("generation").join("pagemap-7.img"), table(&[])).unwrap();
        let found = BTreeMap::from([(std::process::id(), (7, ranges(&[(0, PAGE)])))]);
        let link = common.complete(&at("generation"), &found).unwrap().unwrap();
        let runs = common.runs.clone();
        assert!(at("first").exists());
        drop(common);
        assert!(!at("first").exists());
        let digests = BTreeMap::from([link]);
        let again = Common::of_generation(&at("generation"), &digests, at("second")).unwrap().unwrap();
        assert_eq!((again.runs.clone(), again.name), (runs, PAGES));
        assert!(Common::of_generation(&at("generation"), &BTreeMap::new(), at("third")).unwrap().is_none());
        for name in [PAGES, TABLE, PROCESSES] {
            assert!(is_about(name));
            link_into(&at("view"), &at("generation"), name).unwrap();
        }
        let read = |name: &str| std::fs::read(at("view").join("parent").join(name)).unwrap();
        assert_eq!(read("pagemap-7.img"), table(&again.runs));
        assert_eq!(read("pages-1.img").len() as u64, again.bytes());
        assert!(Common::store(own(), PAGE, false, at("fourth")).is_err() && !at("fourth").exists());
    }
}
