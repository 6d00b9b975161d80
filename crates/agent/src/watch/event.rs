//! Converts the kernel's event flags to events for clients. Pure.

use rustix::fs::inotify::ReadFlags;
use sandcove_wire::envd::filesystem::EventType;

/// The events that one kernel event stands for, in the order clients get them.
pub(super) fn types(flags: ReadFlags) -> impl Iterator<Item = EventType> {
    let order = [
        (ReadFlags::CREATE | ReadFlags::MOVED_TO, EventType::Create),
        (ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF, EventType::Rename),
        (ReadFlags::ATTRIB, EventType::Chmod),
        (ReadFlags::MODIFY, EventType::Write),
        (ReadFlags::DELETE | ReadFlags::DELETE_SELF, EventType::Remove),
    ];
    order.into_iter().filter(move |(mask, _)| flags.intersects(*mask)).map(|(_, kind)| kind)
}

/// Whether an entry can still exist after such an event.
pub(super) fn leaves_entry(kind: EventType) -> bool {
    matches!(kind, EventType::Create | EventType::Write | EventType::Chmod)
}

/// Whether an event may be about a file without a name, such as an upload in progress. The kernel reports changes of those under
/// `#` and a number.
pub(super) fn may_be_nameless(flags: ReadFlags, name: &[u8]) -> bool {
    let changed = ReadFlags::MODIFY | ReadFlags::ATTRIB;
    let digits = name.strip_prefix(b"#").unwrap_or_default();
    flags.intersects(changed)
        && flags.difference(changed).is_empty()
        && !digits.is_empty()
        && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_flags_come_in_a_fixed_order() {
        let all = types(ReadFlags::all()).collect::<Vec<_>>();
        use EventType::{Chmod, Create, Remove, Rename, Write};
        assert_eq!(all, [Create, Rename, Chmod, Write, Remove]);
        assert_eq!(types(ReadFlags::MOVED_TO | ReadFlags::ISDIR).collect::<Vec<_>>(), [Create]);
        assert_eq!(types(ReadFlags::IGNORED).count(), 0);
    }

    #[test]
    fn only_changes_of_numbers_may_be_nameless() {
        assert!(may_be_nameless(ReadFlags::MODIFY, b"#123"));
        assert!(!may_be_nameless(ReadFlags::CREATE, b"#123"));
        assert!(!may_be_nameless(ReadFlags::MODIFY, b"#"));
        assert!(!may_be_nameless(ReadFlags::MODIFY, b"#12a"));
        assert!(!may_be_nameless(ReadFlags::MODIFY, b"123"));
    }
}
