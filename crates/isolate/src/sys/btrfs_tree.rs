//! Searching the trees of a btrfs, by ioctl: which subvolumes there are, and what their quota groups hold. Keys and items:
//! `linux/btrfs_tree.h`.

use std::io;
use std::os::fd::BorrowedFd;

use super::btrfs::{ioctl, iowr};

/// The tree of all trees.
pub(super) const ROOT_TREE: u64 = 1;
/// The tree of the quota groups.
pub(super) const QUOTA_TREE: u64 = 8;

const ROOT_ITEM: u32 = 132;
const ROOT_REF: u32 = 156;

/// Key of an item; items are in the order of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) object: u64,
    pub(super) kind: u32,
    pub(super) offset: u64,
}

impl Key {
    /// The lowest key after this one; none after the highest.
    fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Self { kind, offset: 0, ..self });
        }
        self.object.checked_add(1).map(|object| Self { object, kind: 0, offset: 0 })
    }
}

#[repr(C)]
struct SearchKey {
    tree: u64,
    min_object: u64,
    max_object: u64,
    min_offset: u64,
    max_offset: u64,
    min_transaction: u64,
    max_transaction: u64,
    min_kind: u32,
    max_kind: u32,
    items: u32,
    unused: [u32; 9],
}

const BUFFER: usize = 4096 - size_of::<SearchKey>();
/// Size of the header in front of every item: transaction, object, offset, kind, length of the item.
const HEADER: usize = 32;

#[repr(C)]
struct Search {
    key: SearchKey,
    buffer: [u8; BUFFER],
}

/// Calls `visit` with every item of `tree` from `min` to `max`, in order. The file system is that of `fd`.
pub(super) fn search(
    fd: BorrowedFd<'_>,
    tree: u64,
    min: Key,
    max: Key,
    mut visit: impl FnMut(Key, &[u8]),
) -> io::Result<()> {
    let mut from = min;
    loop {
        let key = SearchKey {
            tree,
            min_object: from.object,
            max_object: max.object,
            min_offset: from.offset,
            max_offset: max.offset,
            min_transaction: 0,
            max_transaction: u64::MAX,
            min_kind: from.kind,
            max_kind: max.kind,
            items: u32::MAX,
            unused: [0; 9],
        };
        let mut args = Search { key, buffer: [0; BUFFER] };
        ioctl(fd, iowr(17, size_of::<Search>()), &mut args)?;
        let Some(last) = visit_all(&args.buffer, args.key.items, &mut visit) else { return Ok(()) };
        match last.next() {
            Some(next) if next <= max => from = next,
            _ => return Ok(()),
        }
    }
}

/// Calls `visit` with the first `count` items of a buffer, and returns the key of the last one.
fn visit_all(buffer: &[u8], count: u32, visit: &mut impl FnMut(Key, &[u8])) -> Option<Key> {
    let (mut rest, mut last) = (buffer, None);
    for _ in 0..count {
        let (header, after) = rest.split_at_checked(HEADER)?;
        let key = Key { object: number(header, 8)?, offset: number(header, 16)?, kind: half(header, 24)? };
        let (item, after) = after.split_at_checked(half(header, 28)? as usize)?;
        visit(key, item);
        last = Some(key);
        rest = after;
    }
    last
}

/// The 64-bit number at a byte of an item; the kernel stores it in little-endian order.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The numbers of the subvolumes nested directly in the subvolume `number`.
pub(crate) fn nested_in(fd: BorrowedFd<'_>, number: u64) -> io::Result<Vec<u64>> {
    let min = Key { object: number, kind: ROOT_REF, offset: 0 };
    let mut nested = Vec::new();
    search(fd, ROOT_TREE, min, Key { offset: u64::MAX, ..min }, |key, _| nested.push(key.offset))?;
    Ok(nested)
}

/// Whether there is a subvolume with that number, which may be in the course of being deleted.
pub(crate) fn subvolume_exists(fd: BorrowedFd<'_>, number: u64) -> io::Result<bool> {
    let min = Key { object: number, kind: ROOT_ITEM, offset: 0 };
    let mut exists = false;
    search(fd, ROOT_TREE, min, Key { offset: u64::MAX, ..min }, |_, _| exists = true)?;
    Ok(exists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: Key, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap();
        let header = [0u64, key.object, key.offset].map(u64::to_le_bytes).concat();
        [header, key.kind.to_le_bytes().to_vec(), length.to_le_bytes().to_vec(), data.to_vec()].concat()
    }

    #[test]
    fn items_of_any_length_are_found_in_a_buffer() {
        let keys = [1, 2].map(|object| Key { object, kind: 242, offset: 7 });
        let mut buffer = [item(keys[0], b"first"), item(keys[1], b"")].concat();
        let mut seen = Vec::new();
        let mut visit = |key, data: &[u8]| seen.push((key, data.to_vec()));
        assert_eq!(visit_all(&buffer, 2, &mut visit), Some(keys[1]));
        assert_eq!(seen, [(keys[0], b"first".to_vec()), (keys[1], Vec::new())]);
        // A length beyond the buffer.
        buffer[28] = 255;
        assert_eq!(visit_all(&buffer, 2, &mut |_, _| {}), None);
        assert_eq!(visit_all(&[], 1, &mut |_, _| {}), None);
    }

    #[test]
    fn keys_are_followed_by_the_next_higher_one() {
        let key = Key { object: 1, kind: 2, offset: 3 };
        assert_eq!(key.next(), Some(Key { offset: 4, ..key }));
        assert_eq!(Key { offset: u64::MAX, ..key }.next(), Some(Key { kind: 3, offset: 0, ..key }));
        let last = Key { object: u64::MAX, kind: u32::MAX, offset: u64::MAX };
        assert_eq!(last.next(), None);
    }
}
