//! Memory that a sandbox has in common with the warm process which it was forked from: nine tenths of what a kernel has. It is stored once for each warm
//! process, and generations have links to it.
//!
//! What is common is decided by comparison of each page with the file, while the sandbox is frozen. So it does not matter what the warm process has written
//! since, and no page of one sandbox gets into another. CRIU, which has begun meanwhile, does not see such pages (`packaging/criu/preload.c`), and its images are completed: they say that the pages are in those of a parent, as in CRIU's own incremental dumps.
//!
//! | file of a generation | content | in a view |
//! | --- | --- | --- |
//! | `pages-common.img` | the pages | `parent/pages-1.img` |
//! | `common-N.img` | their addresses, for the process with number N inside | `parent/pagemap-N.img` |

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::comparison::{PAGE, Pages, Process, Ranges, chunks, mappings};
use super::images::{MAGIC, get, messages};
use super::numbers;
use crate::criu::{Fields, Value, encode};

/// Names of the file with the pages. Those of a team's own template count as memory of each generation that has them: a team may have any number of templates.
pub(super) const PAGES: &str = "pages-common.img";
const COUNTED_PAGES: &str = "pages-template.img";
/// Beginning and end of the names of tables of addresses.
const TABLE: &str = "common-";
const END: &str = ".img";
/// Names of pages and table in a directory of their own.
const FILE: &str = "pages";
const OWN_TABLE: &str = "table";
/// The directory of a view that CRIU looks for what is in the images of a parent, and the beginning of the names of tables there.
const PARENT: &str = "parent";
const PARENT_TABLE: &str = "pagemap-";
const PARENT_PAGES: &str = "pages-1.img";
/// Magic numbers at the start of a table: of images, and of tables of pages.
const TABLE_MAGIC: [u32; 2] = [0x5456_4319, 0x5608_4025];
/// Fields of the first message of a table: the number of the file with the pages; and of all others: an address, an obsolete number of pages, what is
/// known of them, and their number.
const PAGES_NUMBER: u64 = 1;
const ADDRESS: u64 = 1;
const OBSOLETE_COUNT: u64 = 2;
const FLAGS: u64 = 4;
const COUNT: u64 = 5;
/// Flags of pages: that they are in the images of the parent, and that they are in these.
const IN_PARENT: u64 = 1;
const PRESENT: u64 = 4;

/// Pages of a process as they were at one time, in a directory that is deleted with this.
#[derive(Debug)]
pub(crate) struct Common {
    directory: PathBuf,
    /// The file with the pages, and its name in generations.
    pages: File,
    name: &'static str,
    /// Digest of the pages, hexadecimal.
    digest: String,
    runs: Vec<Run>,
    /// The process whose pages they are; `None` when they come from a generation.
    source: Option<u32>,
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
    /// Stores the private memory of the process `pid` in the new directory `directory`. The process may be running. It is `counted` with each
    /// generation that has it, or not at all.
    ///
    /// # Errors
    /// When the process cannot be read, or nothing can be written.
    pub(crate) fn store(pid: u32, counted: bool, directory: PathBuf) -> io::Result<Self> {
        std::fs::create_dir(&directory)?;
        let removed = RemovedOnError(&directory);
        let process = Process::open(pid)?;
        let mut file = File::options().read(true).write(true).create_new(true).open(directory.join(FILE))?;
        let (mut runs, mut position, mut digest) = (Vec::<Run>::new(), 0, Sha256::new());
        let mut buffer = Vec::new();
        for mapping in mappings(pid)? {
            for chunk in chunks(mapping) {
                for addresses in process.present(&chunk)? {
                    // What is gone meanwhile is not stored.
                    buffer.resize((addresses.end - addresses.start) as usize, 0);
                    if process.read(addresses.start, &mut buffer).is_err() {
                        continue;
                    }
                    file.write_all(&buffer)?;
                    digest.update(&buffer);
                    match runs.last_mut() {
                        Some(run) if run.addresses.end == addresses.start => {
                            run.addresses.end = addresses.end;
                        }
                        _ => runs.push(Run { addresses, position }),
                    }
                    position += buffer.len() as u64;
                }
            }
        }
        std::fs::write(directory.join(OWN_TABLE), table(&runs))?;
        std::mem::forget(removed);
        let name = if counted { COUNTED_PAGES } else { PAGES };
        Ok(Self { directory, pages: file, name, digest: hexadecimal(digest), runs, source: Some(pid) })
    }

    /// The pages that the generation in `from` has in common with others, linked into the new directory `directory`; `None` when it has none. `images`
    /// are the digests of its files.
    pub(crate) fn of_generation(
        from: &Path,
        images: &BTreeMap<String, String>,
        directory: PathBuf,
    ) -> io::Result<Option<Self>> {
        let table = images.keys().find(|name| name.starts_with(TABLE));
        let pages = [PAGES, COUNTED_PAGES].into_iter().find_map(|name| Some((name, images.get(name)?)));
        let (Some(table), Some((name, digest))) = (table, pages) else { return Ok(None) };
        std::fs::create_dir(&directory)?;
        let removed = RemovedOnError(&directory);
        let linked = directory.join(OWN_TABLE);
        std::fs::hard_link(from.join(table), &linked)?;
        std::fs::hard_link(from.join(name), directory.join(FILE))?;
        let (pages, runs) = (File::open(directory.join(FILE))?, runs(&linked)?);
        std::mem::forget(removed);
        Ok(Some(Self { directory, pages, name, digest: digest.clone(), runs, source: None }))
    }

    /// The pages, by their addresses.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The process whose pages they are, if that is known.
    pub(super) fn source(&self) -> Option<u32> {
        self.source
    }

    /// Reads pages of a run, from that at `address` on.
    pub(super) fn read(&self, run: &Run, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.pages.read_exact_at(buffer, run.position_of(address))
    }

    /// Completes the images in `directory`, in which the pages `found` are missing, and links these pages into it; returns the name and the digest of
    /// that link. `None` when no pages are missing: where what is preloaded into CRIU is that of an earlier version, CRIU has stored all.
    pub(super) fn complete(&self, directory: &Path, found: &Pages) -> io::Result<Option<(String, String)>> {
        let numbers = numbers::processes(&found.keys().copied().collect::<Vec<_>>());
        let mut is_used = false;
        for (inside, pid) in numbers {
            let Some(ranges) = found.get(&pid) else { continue };
            if add_to_table(&directory.join(format!("pagemap-{inside}{END}")), ranges)? {
                let table = directory.join(format!("{TABLE}{inside}{END}"));
                std::fs::hard_link(self.directory.join(OWN_TABLE), table)?;
                is_used = true;
            }
        }
        if !is_used {
            return Ok(None);
        }
        std::fs::hard_link(self.directory.join(FILE), directory.join(self.name))?;
        Ok(Some((self.name.to_owned(), self.digest.clone())))
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        // What is left is deleted by the next server.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Deletes a directory, unless it is forgotten.
struct RemovedOnError<'a>(&'a Path);

impl Drop for RemovedOnError<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}

/// Whether the file `name` of a generation has pages that others may have too.
pub(super) fn is_pages(name: &str) -> bool {
    [PAGES, COUNTED_PAGES].contains(&name)
}

/// Name in a view of the file `name` of a generation; `None` for files that keep theirs.
pub(super) fn name_in_view(name: &str) -> Option<PathBuf> {
    if is_pages(name) {
        return Some(Path::new(PARENT).join(PARENT_PAGES));
    }
    let number = name.strip_prefix(TABLE)?;
    Some(Path::new(PARENT).join(format!("{PARENT_TABLE}{number}")))
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

fn hexadecimal(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
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
        let common = Common::store(std::process::id(), false, at("first")).unwrap();
        std::fs::create_dir(at("generation")).unwrap();
        let inside = numbers::processes(&[std::process::id()]).into_keys().next().unwrap();
        let pagemap = at("generation").join(format!("pagemap-{inside}.img"));
        std::fs::write(pagemap, table(&[])).unwrap();
        let found = BTreeMap::from([(std::process::id(), ranges(&[(0, PAGE)]))]);
        let link = common.complete(&at("generation"), &found).unwrap().unwrap();
        let images = BTreeMap::from([(format!("{TABLE}{inside}{END}"), String::new()), link]);
        let runs = common.runs.clone();
        assert!(at("first").exists());
        drop(common);
        assert!(!at("first").exists());
        let again = Common::of_generation(&at("generation"), &images, at("second")).unwrap().unwrap();
        assert_eq!((again.runs.clone(), again.name), (runs, PAGES));
        assert!(Common::of_generation(&at("generation"), &BTreeMap::new(), at("third")).unwrap().is_none());
    }
}
