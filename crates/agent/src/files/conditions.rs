//! Ranges and conditions of a download (RFC 9110, sections 13 and 14), for files that have a modification time but no
//! entity tag. Pure.

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// The part of a file to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection {
    /// The whole file: 200.
    Whole,
    /// A part of `length` bytes from `start`: 206.
    Part { start: u64, length: u64 },
    /// Nothing, as the client has the file already: 304.
    NotModified,
    /// Nothing, as the file is not the version the client wants: 412.
    PreconditionFailed,
    /// Nothing, as the range lies outside of the file: 416.
    Unsatisfiable,
}

/// Whether the answer depends on the exact bytes, so that they must not be compressed.
pub(super) fn needs_identity(headers: &HeaderMap) -> bool {
    [RANGE, IF_RANGE, IF_MODIFIED_SINCE, IF_NONE_MATCH].iter().any(|name| headers.contains_key(name))
}

/// Selects the part of a file of `size` bytes that was changed at `modified`, in Unix seconds.
pub(super) fn select(headers: &HeaderMap, size: u64, modified: i64) -> Selection {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let since = |name| text(name).and_then(http_date);
    let any = Some("*");

    let current = match text(IF_MATCH) {
        // Without an entity tag only `*` matches.
        Some(tags) => Some(tags) == any,
        None => since(IF_UNMODIFIED_SINCE).is_none_or(|date| modified <= date),
    };
    if !current {
        return Selection::PreconditionFailed;
    }
    let unchanged = match text(IF_NONE_MATCH) {
        Some(tags) => Some(tags) == any,
        None => since(IF_MODIFIED_SINCE).is_some_and(|date| modified <= date),
    };
    if unchanged {
        return Selection::NotModified;
    }
    let range_applies = text(IF_RANGE).is_none_or(|value| http_date(value) == Some(modified));
    match text(RANGE) {
        Some(range) if range_applies => select_range(range, size),
        _ => Selection::Whole,
    }
}

/// Selects a range. Malformed ranges cannot be satisfied; of several ranges the whole is the answer, as the RFC allows, unless only one
/// overlaps. A range is ignored when there is nothing to select from.
fn select_range(range: &str, size: u64) -> Selection {
    let Some(ranges) = range.strip_prefix("bytes=") else { return Selection::Unsatisfiable };
    let mut parts = Vec::new();
    for spec in ranges.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        match one_range(spec, size) {
            Some(part) => parts.extend(part),
            None => return Selection::Unsatisfiable,
        }
    }
    match parts[..] {
        _ if size == 0 => Selection::Whole,
        [] => Selection::Unsatisfiable,
        [(start, length)] => Selection::Part { start, length },
        _ => Selection::Whole,
    }
}

/// The start and the length of a range, if it overlaps with what there is; `None` if it is malformed.
fn one_range(spec: &str, size: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = spec.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse::<u64>().ok().map(Some),
        _ => None,
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        (None, Some(length)) => {
            let length = length.min(size);
            Some((length > 0).then(|| (size - length, length)))
        }
        (Some(first), _) if first >= size => Some(None),
        (Some(first), last) => {
            Some(Some((first, last.map_or(size - 1, |last| last.min(size - 1)) - first + 1)))
        }
    }
}

fn http_date(text: &str) -> Option<i64> {
    // An HTTP date is a date of RFC 2822 with `GMT` for the zone.
    rfc2822::parse(text).ok().map(|date| date.timestamp().as_second())
}

/// Formats a time for a header; `None` when it is out of range.
pub(super) fn format_http_date(seconds: i64) -> Option<String> {
    let instant = Timestamp::from_second(seconds).ok()?;
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&instant).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    const MODIFIED: i64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn select_for(pairs: &[(HeaderName, &'static str)], size: u64) -> Selection {
        let headers = pairs.iter().map(|(k, v)| (k.clone(), HeaderValue::from_static(v))).collect();
        select(&headers, size, MODIFIED)
    }

    #[test]
    fn dates_are_read_and_written() {
        assert_eq!(http_date(DATE), Some(MODIFIED));
        assert_eq!(format_http_date(MODIFIED).as_deref(), Some(DATE));
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn ranges_select_parts() {
        let part = |start, length| Selection::Part { start, length };
        let cases = [
            ("bytes=0-3", part(0, 4)),
            ("bytes=2-", part(2, 8)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-99", part(0, 10)),
            ("bytes=8-99", part(8, 2)),
            ("bytes=10-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=3-2", Selection::Unsatisfiable),
            ("bytes=0-1,3-4", Selection::Whole),
            ("bytes=-", Selection::Unsatisfiable),
            ("bytes=, 2-3 ,", part(2, 2)),
            ("bytes=2-3,10-", part(2, 2)),
            ("bytes=+1-2", Selection::Unsatisfiable),
            ("lines=0-3", Selection::Unsatisfiable),
            ("bytes=99999999999999999999-", Selection::Unsatisfiable),
        ];
        for (range, expected) in cases {
            assert_eq!(select_for(&[(RANGE, range)], 10), expected, "{range}");
        }
        assert_eq!(select_for(&[(RANGE, "bytes=-5")], 0), Selection::Whole);
        assert_eq!(select_for(&[(RANGE, "bytes=0-")], 0), Selection::Whole);
    }

    #[test]
    fn conditions_compare_with_the_modification_time() {
        let cases: [(&[(HeaderName, &'static str)], Selection); 9] = [
            (&[(IF_MODIFIED_SINCE, DATE)], Selection::NotModified),
            (&[(IF_MODIFIED_SINCE, EARLIER)], Selection::Whole),
            (&[(IF_UNMODIFIED_SINCE, EARLIER)], Selection::PreconditionFailed),
            (&[(IF_UNMODIFIED_SINCE, LATER)], Selection::Whole),
            (&[(IF_NONE_MATCH, "*")], Selection::NotModified),
            (&[(IF_NONE_MATCH, "\"tag\""), (IF_MODIFIED_SINCE, LATER)], Selection::Whole),
            (&[(IF_MATCH, "\"tag\"")], Selection::PreconditionFailed),
            (&[(IF_RANGE, DATE), (RANGE, "bytes=1-1")], Selection::Part { start: 1, length: 1 }),
            (&[(IF_RANGE, EARLIER), (RANGE, "bytes=1-1")], Selection::Whole),
        ];
        for (headers, expected) in cases {
            assert_eq!(select_for(headers, 10), expected, "{headers:?}");
        }
    }
}
