//! Comparison of the memory of processes with that which sandboxes have in common.
//!
//! A page that two processes share has the same frame of memory in both, and is compared once. Those of a warm process are compared before a sandbox stands
//! still: while the sandbox has the frame that the warm process has at the same address, it has had it since the fork, and a frame that two processes share
//! is not written to. So nearly nothing is left to be compared while processes wait.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::common::{Common, Run};
use super::numbers;

/// Size of a page, bytes.
pub(super) const PAGE: u64 = 4096;
/// Pages that are looked at, and that are compared, at a time: these fit into the processor's cache.
const CHUNK: u64 = 256;
const COMPARED: usize = 16;
/// Bytes for a page in `/proc/PID/pagemap`, and bits there: the page is in memory, in swap, belongs to a file or is shared, and is mapped by one process
/// alone; and its frame.
const ENTRY: usize = 8;
const IN_MEMORY: u64 = 1 << 63;
const IN_SWAP: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;
/// Processor time for comparing the processes of a sandbox. What is not compared is stored.
const TIME: Duration = Duration::from_secs(1);

/// Maximum number of ranges of all processes. What is beyond is stored.
const MAX_RANGES: usize = 100_000;
/// Size of a mapping that cannot be written to, bytes, beyond which a process has nothing in common: with images of a parent, CRIU maps all memory as
/// writable for a moment, and the kernel may refuse so much.
const MAX_RESERVED: u64 = 1 << 30;
/// Setting of the kernel about memory that is only reserved: with 2, all that is mapped as writable counts.
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// Ranges of addresses, in their order.
pub(super) type Ranges = Vec<Range<u64>>;
/// The pages of processes that are common, with the number that the process has inside, by process.
pub(super) type Pages = BTreeMap<u32, (u32, Ranges)>;

/// A comparison of processes with common memory.
#[derive(Debug)]
pub(crate) struct Comparison {
    common: Arc<Common>,
    /// For each page its frame in the process that was compared last, 0 when that is not known, and whether it was equal.
    compared: Vec<(u64, bool)>,
    is_prepared: bool,
    theirs: Vec<u8>,
    ours: Vec<u8>,
}

impl Comparison {
    /// A comparison with `common`.
    pub(crate) fn new(common: Arc<Common>) -> Self {
        let count = common.runs().last().map_or(0, |last| last.index(last.addresses.end));
        let buffer = vec![0; COMPARED * PAGE as usize];
        Self {
            common,
            compared: vec![(0, false); count],
            is_prepared: false,
            theirs: buffer.clone(),
            ours: buffer,
        }
    }

    /// Compares the warm process, while the sandbox, which has been forked from it before, still runs.
    pub(crate) fn prepare(mut self) -> Self {
        let (common, budget) = (self.common.clone(), Budget::of(TIME));
        if let Some(source) = common.source() {
            for run in common.runs() {
                for chunk in chunks(run.addresses.clone()) {
                    // What cannot be read is compared later.
                    if !budget.is_spent() {
                        let _ = self.add_chunk(source, run, &chunk, &mut Ranges::new());
                    }
                }
            }
            self.is_prepared = true;
        }
        self
    }

    /// Finds the pages that the frozen processes `pids` have in common with others, and writes them to `output` for the library that is preloaded into CRIU.
    pub(super) fn report(mut self, pids: &[u32], mut output: impl Write) -> (Pages, Arc<Common>) {
        let found = self.find(pids);
        // Pages that do not get there, because CRIU has ended or the library is an earlier one, are stored by CRIU.
        let _ = output.write_all(text(&found).as_bytes());
        (found, self.common)
    }

    /// The pages of `pids` in common, if they are most of the common ones: a link to all of these would not be worth it otherwise.
    fn find(&mut self, pids: &[u32]) -> Pages {
        let (budget, mut found) = (Budget::of(TIME), Pages::new());
        if std::fs::read_to_string(OVERCOMMIT).is_ok_and(|text| text.trim() == "2") {
            return found;
        }
        if self.is_prepared {
            self.forget_changed();
        }
        let (mut count, mut bytes) = (0, 0);
        for (inside, pid) in numbers::processes(pids) {
            let mut equal = Ranges::new();
            // A process that cannot be read any further has nothing more in common.
            let _ = self.add(pid, &budget, &mut equal);
            count += equal.len();
            if budget.is_spent() || count > MAX_RANGES {
                break;
            }
            if !equal.is_empty() {
                bytes += equal.iter().map(|range| range.end - range.start).sum::<u64>();
                found.insert(pid, (inside, equal));
            }
        }
        if bytes < self.common.bytes() / 4 * 3 { Pages::new() } else { found }
    }

    /// Forgets the pages that the warm process does not have any more.
    fn forget_changed(&mut self) {
        let mut present = vec![0; self.compared.len()];
        if let Some(source) = self.common.source() {
            for run in self.common.runs() {
                for chunk in chunks(run.addresses.clone()) {
                    for (address, frame) in source.frames(&chunk).unwrap_or_default() {
                        present[run.index(address)] = frame;
                    }
                }
            }
        }
        for ((known, _), frame) in self.compared.iter_mut().zip(present) {
            if *known != frame {
                *known = 0;
            }
        }
    }

    /// Adds the pages of a process that are equal.
    fn add(&mut self, pid: u32, budget: &Budget, equal: &mut Ranges) -> io::Result<()> {
        let (process, common) = (Process::open(pid)?, self.common.clone());
        for mapping in process.comparable()? {
            let first = common.runs().partition_point(|run| run.addresses.end <= mapping.start);
            let runs = common.runs().iter().skip(first);
            for run in runs.take_while(|run| run.addresses.start < mapping.end) {
                let both = run.addresses.start.max(mapping.start)..run.addresses.end.min(mapping.end);
                for chunk in chunks(both) {
                    if budget.is_spent() {
                        return Ok(());
                    }
                    self.add_chunk(&process, run, &chunk, equal)?;
                }
            }
        }
        Ok(())
    }

    fn add_chunk(
        &mut self,
        process: &Process,
        run: &Run,
        chunk: &Range<u64>,
        equal: &mut Ranges,
    ) -> io::Result<()> {
        let frames = process.frames(chunk)?;
        let mut unknown = Ranges::new();
        for (address, frame) in &frames {
            if *frame == 0 || self.compared[run.index(*address)].0 != *frame {
                push(&mut unknown, *address..address + PAGE);
            }
        }
        for addresses in unknown.into_iter().flat_map(|addresses| pieces(addresses, COMPARED as u64)) {
            let length = (addresses.end - addresses.start) as usize;
            let (theirs, ours) = (&mut self.theirs[..length], &mut self.ours[..length]);
            process.read(addresses.start, theirs)?;
            self.common.read(run, addresses.start, ours)?;
            let pages = theirs.chunks(PAGE as usize).zip(ours.chunks(PAGE as usize));
            let compared = &mut self.compared[run.index(addresses.start)..];
            for (compared, (theirs, ours)) in compared.iter_mut().zip(pages) {
                *compared = (0, theirs == ours);
            }
        }
        for (address, frame) in frames {
            let (known, is_equal) = &mut self.compared[run.index(address)];
            *known = frame;
            if *is_equal {
                push(equal, address..address + PAGE);
            }
        }
        Ok(())
    }
}

/// A line for each range of pages.
fn text(found: &Pages) -> String {
    let lines = found.iter().flat_map(|(pid, (_, ranges))| {
        ranges.iter().map(move |range| format!("{pid} {:x} {:x}\n", range.start, range.end))
    });
    lines.collect()
}

/// A process whose memory is read. It stays the same process when another one gets its number.
#[derive(Debug)]
pub(crate) struct Process {
    memory: File,
    pages: File,
    maps: File,
}

impl Process {
    /// Opens the process `pid`.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/{pid}/{name}"));
        Ok(Self { memory: open("mem")?, pages: open("pagemap")?, maps: open("maps")? })
    }

    /// Addresses of the private mappings, except those that the kernel makes.
    pub(super) fn mappings(&self) -> io::Result<Ranges> {
        Ok(self.private()?.into_iter().map(|(mapping, _)| mapping).collect())
    }

    /// Addresses of the same mappings, or none when the process has reserved more memory than CRIU may map.
    fn comparable(&self) -> io::Result<Ranges> {
        let mappings = self.private()?;
        let is_too_large = |(mapping, is_writable): &(Range<u64>, bool)| {
            !is_writable && mapping.end - mapping.start > MAX_RESERVED
        };
        if mappings.iter().any(is_too_large) {
            return Ok(Ranges::new());
        }
        Ok(mappings.into_iter().map(|(mapping, _)| mapping).collect())
    }

    fn private(&self) -> io::Result<Vec<(Range<u64>, bool)>> {
        let mut text = String::new();
        (&self.maps).rewind()?;
        (&self.maps).read_to_string(&mut text)?;
        Ok(text.lines().filter_map(private_mapping).collect())
    }

    /// Addresses of the pages of `addresses` that belong to the process alone, or to it and those that it was forked from and has forked.
    pub(super) fn present(&self, addresses: &Range<u64>) -> io::Result<Vec<u64>> {
        Ok(self.frames(addresses)?.into_iter().map(|(address, _)| address).collect())
    }

    /// Addresses of the pages of [`Process::present`], with the frame of each; 0 where it has none, may not be known, or no other process has it:
    /// then the page may be written to as it is.
    fn frames(&self, addresses: &Range<u64>) -> io::Result<Vec<(u64, u64)>> {
        let count = ((addresses.end - addresses.start) / PAGE) as usize;
        let mut entries = vec![0; count * ENTRY];
        self.pages.read_exact_at(&mut entries, addresses.start / PAGE * ENTRY as u64)?;
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let entries = entries.iter().map(|entry| u64::from_le_bytes(*entry));
        let is_own = |entry: u64| entry & (IN_MEMORY | IN_SWAP) != 0 && entry & OF_FILE == 0;
        let is_shared = |entry: u64| entry & IN_MEMORY != 0 && entry & EXCLUSIVE == 0;
        let frame = |entry: u64| if is_shared(entry) { entry & FRAME } else { 0 };
        let pages =
            (addresses.start..).step_by(PAGE as usize).zip(entries).filter(|(_, entry)| is_own(*entry));
        Ok(pages.map(|(address, entry)| (address, frame(entry))).collect())
    }

    /// Reads memory from `address` on.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(buffer, address)
    }
}

/// The addresses of a private mapping, and whether it can be written to.
fn private_mapping(line: &str) -> Option<(Range<u64>, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let name = fields.nth(3).unwrap_or_default();
    if !rights.ends_with('p') || name.starts_with("[v") {
        return None;
    }
    let addresses = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    Some((addresses, rights.contains('w')))
}

/// Parts of a range that are looked at at a time.
pub(super) fn chunks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    pieces(range, CHUNK)
}

/// Parts of a range with `count` pages each; the last one may have less.
fn pieces(range: Range<u64>, count: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by((count * PAGE) as usize).map(move |start| start..end.min(start + count * PAGE))
}

/// Adds a range behind the others.
fn push(ranges: &mut Ranges, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_mappings_that_the_kernel_has_not_made_are_compared() {
        for (line, wanted) in [
            (
                "7f0000000000-7f0000002000 rw-p 00000000 00:00 0 ",
                Some((0x7f00_0000_0000..0x7f00_0000_2000, true)),
            ),
            ("1000-2000 r--p 00000000 00:1f 77   /usr/lib/a b.so", Some((0x1000..0x2000, false))),
            ("1000-2000 rw-s 00000000 00:01 5    /dev/zero (deleted)", None),
            ("1000-2000 r-xp 00000000 00:00 0    [vdso]", None),
            ("1000-2000 rw-p 00000000 00:00 0    [heap]", Some((0x1000..0x2000, true))),
            ("nothing", None),
        ] {
            assert_eq!(private_mapping(line), wanted, "{line}");
        }
    }

    /// A process that is forked and writes to one page of 64 then. Prints the address of the first, and the numbers of both processes.
    const FORKS: &str = "
import ctypes, mmap, os, sys
memory = mmap.mmap(-1, 64 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = bytes(range(256)) * 1024
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
child = os.fork()
if child:
    print(address, os.getpid(), child, flush=True)
    os.wait()
else:
    sys.stdin.readline()
    memory[20 * 4096] = 7
    print('written', flush=True)
    sys.stdin.readline()
";

    #[test]
    fn a_page_that_is_written_to_after_the_preparation_is_not_common() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};

        let mut command = Command::new("python3");
        let mut python =
            command.args(["-c", FORKS]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut lines) =
            (python.stdin.take().unwrap(), BufReader::new(python.stdout.take().unwrap()).lines());
        let line = lines.next().unwrap().unwrap();
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let (first, parent, child) = (numbers[0], numbers[1] as u32, numbers[2] as u32);
        let directory = tempfile::tempdir().unwrap();
        let source = Process::open(parent).unwrap();
        let common = Arc::new(Common::store(source, u64::MAX, false, directory.path().join("own")).unwrap());
        let prepared = Comparison::new(common.clone()).prepare();
        input.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "written");
        // It waits for its input before long.
        while !std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap().contains(") S ") {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut text = Vec::new();
        let (found, _) = prepared.report(&[child], &mut text);
        let (anew, _) = Comparison::new(common).report(&[child], io::sink());
        drop(input);
        python.wait().unwrap();
        assert_eq!(found, anew);
        let has = |page: u64| found[&child].1.iter().any(|range| range.contains(&(first + page * PAGE)));
        assert!(has(0) && has(19) && !has(20) && has(21) && has(63), "{first:x} {found:x?}");
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains(&format!(" {:x}\n{child} {:x} ", first + 20 * PAGE, first + 21 * PAGE)),
            "{text}"
        );
    }

    #[test]
    fn a_process_that_is_gone_has_nothing_in_common() {
        let directory = tempfile::tempdir().unwrap();
        let source = Process::open(std::process::id()).unwrap();
        let common = Common::store(source, u64::MAX, false, directory.path().join("own")).unwrap();
        assert_eq!(Comparison::new(Arc::new(common)).report(&[u32::MAX], io::sink()).0, Pages::new());
    }
}
