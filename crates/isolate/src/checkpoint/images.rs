//! Corrections of CRIU's images after a dump, and the change of slot before a restore.

use std::io;
use std::path::Path;

use super::common;
use crate::criu::{Fields, Value, decode, encode, invalid};

/// Length of the magic numbers at the start of an image, bytes; the inventory has only one.
pub(super) const MAGIC: usize = 8;
const INVENTORY_MAGIC: usize = 4;
/// A number that no namespace of a dump has: CRIU counts them from 1.
const NO_NAMESPACE: u64 = 0xFFFF;
/// Image with the open files, and its maximum size, bytes: each takes about 80, and ten times as much in memory.
const FILES: &str = "files.img";
const MAX_FILES: u64 = 16 << 20;
/// Beginning of the name of the image with semaphores.
const SEMAPHORES: &str = "ipcns-sem-";
/// How packets are held back, in the inventory.
const NFTABLES: u64 = 1;

/// Corrects the images in `directory`.
pub(super) fn correct(directory: &Path) -> io::Result<()> {
    change(&directory.join("inventory.img"), INVENTORY_MAGIC, separate_network)?;
    change(&directory.join(FILES), MAGIC, rearm_timer)?;
    match change(&directory.join("tty-data.img"), MAGIC, undo_output_processing) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether there are more files open than are read into memory.
pub(super) fn have_too_many_files(directory: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(directory.join(FILES))?.len() > MAX_FILES)
}

/// Whether there are semaphores of System V. What they give back when a process ends, CRIU does not store, and the kernel shows nowhere.
pub(super) fn have_semaphores(directory: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SEMAPHORES)
            && entry.metadata()?.len() > MAGIC as u64
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Links the images of `from` into the directory `to`, in which the processes have the ids of another slot.
pub(super) fn link_for(id_base: u32, from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let target = to.join(entry.file_name());
        if common::is_about(&name) {
            common::link_into(to, from, &name)?;
        } else if name.starts_with("userns-") {
            let moved = change_all(&std::fs::read(entry.path())?, MAGIC, |fields| map_to(fields, id_base))?;
            std::fs::write(target, moved)?;
        } else {
            std::fs::hard_link(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The processes have to get a network namespace of their own that belongs to their user namespace: only then may they repair TCP
/// connections. CRIU was in their namespace when it stored them, so the images call that one CRIU's (`root_ids`, `net_ns_id`).
///
/// The images also say that no packets were held back, which was right for frozen processes. While connections are made again, a packet to an
/// end that is not there yet would end them, and CRIU goes by the images and not by its options (`network_lock_method`).
fn separate_network(inventory: &mut Fields) -> io::Result<()> {
    set(inventory, 11, NFTABLES);
    change_nested(inventory, 3, |ids| {
        set(ids, 6, NO_NAMESPACE);
    })
}

/// A periodic timerfd that has expired and was not read has no time left, which means to CRIU that it is off. It gets the
/// shortest time and expires once more. Fields of `tfd`: 5 expirations, 7 and 8 what is left, 9 and 10 the interval.
fn rearm_timer(file: &mut Fields) -> io::Result<()> {
    change_nested(file, 12, |timer| {
        let is_off = get(timer, 7) == 0 && get(timer, 8) == 0;
        if is_off && (get(timer, 9) > 0 || get(timer, 10) > 0) {
            set(timer, 5, get(timer, 5).saturating_sub(1));
            set(timer, 8, 1);
        }
    })
}

/// Output of a terminal that nobody has read is written to it again by CRIU, and the terminal turns each line feed into a carriage return and a
/// line feed, as it did the first time. The data are field 2.
fn undo_output_processing(terminal: &mut Fields) -> io::Result<()> {
    for (_, value) in terminal.iter_mut().filter(|(number, _)| *number == 2) {
        if let Value::Bytes(bytes) = value {
            let mut previous = bytes.clone();
            previous.push(0);
            let next = previous.iter().skip(1);
            *bytes = bytes
                .iter()
                .zip(next)
                .filter(|pair| *pair != (&b'\r', &b'\n'))
                .map(|(byte, _)| *byte)
                .collect();
        }
    }
    Ok(())
}

/// Sets the first host id of each map of a user namespace (fields 1 and 2 for users and groups; in an extent 2 is the host's id).
fn map_to(namespace: &mut Fields, id_base: u32) -> io::Result<()> {
    for number in [1, 2] {
        change_nested(namespace, number, |extent| set(extent, 2, id_base.into()))?;
    }
    Ok(())
}

/// Changes every message of an image: `magic` bytes, then each message behind its length.
fn change_all(
    image: &[u8],
    magic: usize,
    mut change: impl FnMut(&mut Fields) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let (head, mut rest) = image.split_at_checked(magic).ok_or_else(invalid)?;
    let mut changed = head.to_vec();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(invalid)?;
        let (message, behind) =
            behind.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(invalid)?;
        rest = behind;
        let mut fields = decode(message)?;
        change(&mut fields)?;
        let message = encode(&fields);
        let length = u32::try_from(message.len()).map_err(|_| invalid())?;
        changed.extend_from_slice(&length.to_le_bytes());
        changed.extend_from_slice(&message);
    }
    Ok(changed)
}

/// Changes every message of the image in the file `path`.
pub(super) fn change(
    path: &Path,
    magic: usize,
    by: impl FnMut(&mut Fields) -> io::Result<()>,
) -> io::Result<()> {
    let changed = change_all(&std::fs::read(path)?, magic, by)?;
    std::fs::write(path, changed)
}

/// The messages of the image in the file `path`.
pub(super) fn messages(path: &Path) -> io::Result<Vec<Fields>> {
    let mut found = Vec::new();
    change_all(&std::fs::read(path)?, MAGIC, |message| {
        found.push(message.clone());
        Ok(())
    })?;
    Ok(found)
}

/// Changes the messages in the fields `number`.
pub(super) fn change_nested(
    fields: &mut Fields,
    number: u64,
    mut by: impl FnMut(&mut Fields),
) -> io::Result<()> {
    for (_, value) in fields.iter_mut().filter(|(found, _)| *found == number) {
        if let Value::Bytes(bytes) = value {
            let mut nested = decode(bytes)?;
            by(&mut nested);
            *bytes = encode(&nested);
        }
    }
    Ok(())
}

/// The integer in the field `number`; 0 when there is none.
pub(super) fn get(fields: &Fields, number: u64) -> u64 {
    let found = fields.iter().find(|(found, _)| *found == number);
    if let Some((_, Value::Integer(value))) = found { *value } else { 0 }
}

/// Changes the integer in the field `number`, if there is one.
pub(super) fn set(fields: &mut Fields, number: u64, to: u64) {
    if let Some((_, value)) = fields.iter_mut().find(|(found, _)| *found == number) {
        *value = Value::Integer(to);
    }
}

/// The text in the field `number`.
pub(super) fn text(fields: &Fields, number: u64) -> Option<&str> {
    fields.iter().find_map(|(found, value)| match value {
        Value::Bytes(bytes) if *found == number => std::str::from_utf8(bytes).ok(),
        _ => None,
    })
}

/// Changes the text in the field `number`, if there is one.
pub(super) fn set_text(fields: &mut Fields, number: u64, to: &str) {
    if let Some((_, value)) = fields.iter_mut().find(|(found, _)| *found == number) {
        *value = Value::Bytes(to.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(values: [u64; 5]) -> Fields {
        let numbers = [5, 7, 8, 9, 10];
        let fields: Fields = numbers.into_iter().zip(values.map(Value::Integer)).collect();
        vec![(1, Value::Integer(12)), (12, Value::Bytes(encode(&fields)))]
    }

    #[test]
    fn only_a_periodic_timer_that_has_expired_is_set_again() {
        for (before, after) in [
            ([1, 0, 0, 0, 10], [0, 0, 1, 0, 10]),
            ([0, 0, 0, 5, 0], [0, 0, 1, 5, 0]),
            ([3, 0, 7, 0, 10], [3, 0, 7, 0, 10]),
            ([1, 0, 0, 0, 0], [1, 0, 0, 0, 0]),
        ] {
            let mut file = timer(before);
            rearm_timer(&mut file).unwrap();
            assert_eq!(file, timer(after), "{before:?}");
        }
    }

    #[test]
    fn line_ends_of_unread_output_are_those_that_were_written() {
        let data = |text: &str| vec![(1, Value::Integer(3)), (2, Value::Bytes(text.as_bytes().to_vec()))];
        for (before, after) in [("1 first\r\n\r\nx\r", "1 first\n\nx\r"), ("", ""), ("a\nb", "a\nb")] {
            let mut terminal = data(before);
            undo_output_processing(&mut terminal).unwrap();
            assert_eq!(terminal, data(after));
        }
    }

    #[test]
    fn the_network_namespace_is_no_longer_that_of_criu() {
        let ids =
            |network| encode(&[(5, Value::Integer(1)), (6, Value::Integer(network)), (7, Value::Integer(3))]);
        let inventory = |network, lock| {
            vec![(1, Value::Integer(2)), (3, Value::Bytes(ids(network))), (11, Value::Integer(lock))]
        };
        let mut changed = inventory(2, 2);
        separate_network(&mut changed).unwrap();
        assert_eq!(changed, inventory(NO_NAMESPACE, NFTABLES));
    }

    #[test]
    fn semaphores_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("ipcns-sem-10.img");
        std::fs::write(&image, [0; MAGIC]).unwrap();
        assert!(!have_semaphores(directory.path()).unwrap());
        std::fs::write(&image, [0; MAGIC + 20]).unwrap();
        assert!(have_semaphores(directory.path()).unwrap());
    }

    #[test]
    fn an_image_that_is_cut_off_is_an_error() {
        assert!(change_all(b"magic\x05\0\0\0ab", 5, |_| Ok(())).is_err());
    }

    #[test]
    fn ids_move_to_another_slot() {
        let extent = |host| {
            Value::Bytes(encode(&[
                (1, Value::Integer(0)),
                (2, Value::Integer(host)),
                (3, Value::Integer(65_536)),
            ]))
        };
        let mut namespace = vec![(1, extent(100_000)), (2, extent(100_000))];
        map_to(&mut namespace, 700_000).unwrap();
        assert_eq!(namespace, [(1, extent(700_000)), (2, extent(700_000))]);
    }
}
