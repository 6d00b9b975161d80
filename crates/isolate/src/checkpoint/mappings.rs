//! Private mappings of files that a parent and its child have at one address, of different parts of one file. CRIU compares addresses and files
//! only, takes them for one mapping that the child has got from its parent, and the child has the parent's part of the file in the copy. So the
//! images name the file of each such part on its own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::images::{MAGIC, change, change_nested, get, messages, set};
use crate::criu::{Fields, Value, decode, encode};

/// Fields of messages in `mm-PID.img`: the mappings; and in those the start, the offset in the file, the file, and the kind.
const MAPPINGS: u64 = 14;
const START: u64 = 1;
const OFFSET: u64 = 3;
const FILE: u64 = 4;
const KIND: u64 = 7;
/// Bit of the kind of a private mapping of a file.
const PRIVATE_FILE: u64 = 1 << 6;
/// Fields of messages in `files.img`: the number of the file, and an ordinary file, whose first field is the number again.
const NUMBER: u64 = 2;
const REGULAR: u64 = 3;
const REGULAR_NUMBER: u64 = 1;
/// Field of messages in `remap-fpath.img`, which say where files without a name are: the number of the file.
const WITHOUT_NAME: u64 = 1;

/// A part of a file: its number, an address, and the offset that is mapped there.
type Part = (u64, u64, u64);

/// Gives parts of a file that are mapped at one address files of their own.
pub(super) fn separate(directory: &Path) -> io::Result<()> {
    let memories = memories(directory)?;
    let mut offsets: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for memory in &memories {
        for (file, start, offset) in parts(memory)? {
            let found = offsets.entry((file, start)).or_default();
            if !found.contains(&offset) {
                found.push(offset);
            }
        }
    }
    let others = offsets.into_iter().flat_map(|((file, start), offsets)| {
        offsets.into_iter().skip(1).map(move |offset| (file, start, offset))
    });
    let files = directory.join("files.img");
    let next = messages(&files)?.iter().map(|file| get(file, NUMBER)).max().unwrap_or_default() + 1;
    let numbers: BTreeMap<Part, u64> = others.zip(next..).collect();
    if numbers.is_empty() {
        return Ok(());
    }
    for memory in &memories {
        change(memory, MAGIC, |memory| {
            change_nested(memory, MAPPINGS, |mapping| renumber(mapping, &numbers))
        })?;
    }
    append_copies(&files, &numbers, NUMBER)?;
    match append_copies(&directory.join("remap-fpath.img"), &numbers, WITHOUT_NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The images with the mappings of each process.
fn memories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("mm-") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The parts of files that the process of the image `memory` has mapped privately.
fn parts(memory: &Path) -> io::Result<Vec<Part>> {
    let mut found = Vec::new();
    for (number, value) in messages(memory)?.into_iter().flatten() {
        if let (MAPPINGS, Value::Bytes(mapping)) = (number, value) {
            found.extend(part(&decode(&mapping)?));
        }
    }
    Ok(found)
}

fn part(mapping: &Fields) -> Option<Part> {
    let is_private = get(mapping, KIND) & PRIVATE_FILE != 0;
    is_private.then(|| (get(mapping, FILE), get(mapping, START), get(mapping, OFFSET)))
}

fn renumber(mapping: &mut Fields, numbers: &BTreeMap<Part, u64>) {
    if let Some(number) = part(mapping).and_then(|part| numbers.get(&part)) {
        set(mapping, FILE, *number);
    }
}

/// Appends what the image in `path` has of a file, in whose messages `field` is its number, once for each of its new numbers.
fn append_copies(path: &Path, numbers: &BTreeMap<Part, u64>, field: u64) -> io::Result<()> {
    let messages = messages(path)?;
    let mut image = std::fs::read(path)?;
    let mut of_file: BTreeMap<u64, Vec<&Fields>> = BTreeMap::new();
    for message in &messages {
        of_file.entry(get(message, field)).or_default().push(message);
    }
    for ((file, ..), new) in numbers {
        for &message in of_file.get(file).into_iter().flatten() {
            let mut copy = message.clone();
            set(&mut copy, field, *new);
            change_nested(&mut copy, REGULAR, |regular| set(regular, REGULAR_NUMBER, *new))?;
            let copy = encode(&copy);
            image.extend_from_slice(&(copy.len() as u32).to_le_bytes());
            image.extend_from_slice(&copy);
        }
    }
    std::fs::write(path, image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(values: &[(u64, u64)]) -> Fields {
        values.iter().map(|(number, value)| (*number, Value::Integer(*value))).collect()
    }

    fn write(directory: &Path, name: &str, messages: &[Fields]) {
        let mut image = vec![0; MAGIC];
        for message in messages {
            let message = encode(message);
            image.extend_from_slice(&(message.len() as u32).to_le_bytes());
            image.extend_from_slice(&message);
        }
        std::fs::write(directory.join(name), image).unwrap();
    }

    /// A process with mappings: start, offset, file and kind of each.
    fn memory(mappings: &[[u64; 4]]) -> Fields {
        let mapping = |[start, offset, file, kind]: &[u64; 4]| {
            let fields =
                [(START, *start), (2, start + 4096), (OFFSET, *offset), (FILE, *file), (KIND, *kind)];
            (MAPPINGS, Value::Bytes(encode(&integers(&fields))))
        };
        mappings.iter().map(mapping).collect()
    }

    fn file(number: u64) -> Fields {
        let regular =
            vec![(REGULAR_NUMBER, Value::Integer(number)), (6, Value::Bytes(b"/lib/x.so".to_vec()))];
        vec![
            (1, Value::Integer(1)),
            (NUMBER, Value::Integer(number)),
            (REGULAR, Value::Bytes(encode(&regular))),
        ]
    }

    #[test]
    fn only_another_part_of_a_file_at_the_same_address_gets_a_file_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let parent = [[4096, 0, 7, 65], [8192, 4096, 7, 65], [12_288, 0, 3, 65]];
        let child = [[4096, 0, 7, 65], [8192, 8192, 7, 65], [12_288, 4096, 3, 5]];
        write(directory, "mm-1.img", &[memory(&parent)]);
        write(directory, "mm-2.img", &[memory(&child)]);
        write(directory, "files.img", &[file(3), file(7)]);
        write(directory, "remap-fpath.img", &[integers(&[(1, 7), (2, 1), (3, 1)])]);
        separate(directory).unwrap();
        let renumbered = |mut mappings: [[u64; 4]; 3], number| {
            mappings[1][2] = number;
            vec![memory(&mappings)]
        };
        let found = ["mm-1.img", "mm-2.img"].map(|name| messages(&directory.join(name)).unwrap());
        // Which of the two processes keeps the number depends on the order of the directory.
        let one = [renumbered(parent, 7), renumbered(child, 8)];
        let other = [renumbered(parent, 8), renumbered(child, 7)];
        assert!(found == one || found == other, "{found:?}");
        assert_eq!(messages(&directory.join("files.img")).unwrap(), [file(3), file(7), file(8)]);
        let remaps = messages(&directory.join("remap-fpath.img")).unwrap();
        assert_eq!(remaps, [integers(&[(1, 7), (2, 1), (3, 1)]), integers(&[(1, 8), (2, 1), (3, 1)])]);
    }

    #[test]
    fn images_without_such_mappings_stay_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        write(directory, "mm-1.img", &[memory(&[[4096, 0, 7, 65], [8192, 4096, 7, 65]])]);
        write(directory, "mm-2.img", &[memory(&[[4096, 0, 7, 65]])]);
        write(directory, "files.img", &[file(7)]);
        let before = std::fs::read(directory.join("files.img")).unwrap();
        separate(directory).unwrap();
        assert_eq!(std::fs::read(directory.join("files.img")).unwrap(), before);
    }
}
