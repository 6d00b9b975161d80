//! Records of extended headers of pax: `<length> <key>=<value>\n`. Values are bytes; they may hold newlines.

/// Iterates over the records in `data`.
pub fn records(data: &[u8]) -> Records<'_> {
    Records { rest: data }
}

/// Iterator over records; ends after the first that is malformed.
#[derive(Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

/// A key and its value.
pub type Record<'a> = (&'a str, &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        // Some programs pad with zeros.
        if self.rest.iter().all(|byte| *byte == 0) {
            return None;
        }
        let record = first(self.rest);
        match record {
            Some((record, rest)) => {
                self.rest = rest;
                Some(Ok(record))
            }
            None => {
                self.rest = &[];
                Some(Err("an extended header is malformed"))
            }
        }
    }
}

fn first(data: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = data.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = decimal(&data[..space])?.try_into().ok()?;
    let (record, rest) = data.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    let key = std::str::from_utf8(&body[..equals]).ok().filter(|key| !key.is_empty())?;
    Some(((key, &body[equals + 1..]), rest))
}

/// A decimal number without sign or spaces.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds and nanoseconds of a time, such as `1700000000.5` or `-3`.
pub fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_by_their_length() {
        let data = b"12 path=a/b\n19 SCHILY.x=a\nb\n=c\n5 a=\n\0\0";
        let found: Vec<_> = records(data).map(Result::unwrap).collect();
        assert_eq!(found, [("path", &b"a/b"[..]), ("SCHILY.x", &b"a\nb\n=c"[..]), ("a", &b""[..])]);
        for wrong in [
            &b"13 path=a/b\n"[..],
            b"11 path=a/b\n",
            b"x",
            b"5 a\n",
            b"99999999999999999999 a=b\n",
            b"-1 a=b\n",
            b"4 =\n",
        ] {
            assert!(records(wrong).any(|record| record.is_err()), "{wrong:?}");
            assert!(records(wrong).count() <= 2);
        }
    }

    #[test]
    fn times_have_fractions_and_signs() {
        assert_eq!(time(b"1700000000.5"), Some((1_700_000_000, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"3"), Some((3, 0)));
        assert_eq!(time(b"3.1234567891"), Some((3, 123_456_789)));
        for wrong in [&b""[..], b"a", b"1.x", b"1.2.3", b"99999999999999999999"] {
            assert_eq!(time(wrong), None);
        }
    }
}
