//! `Content-Disposition`, written for downloads and read from the parts of an upload. Pure.

use std::fmt::Write;

/// Writes the header for a file name: plain when it is a token, quoted when it is ASCII, else percent-encoded (RFC 2231).
pub(super) fn inline(name: &str) -> String {
    if !name.is_empty() && name.bytes().all(is_token) {
        return format!("inline; filename={name}");
    }
    if name.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        let mut quoted = String::with_capacity(name.len() + 2);
        for character in name.chars() {
            if matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
        return format!("inline; filename=\"{quoted}\"");
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        if is_token(byte) && !matches!(byte, b'*' | b'\'' | b'%') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    format!("inline; filename*=utf-8''{encoded}")
}

/// Whether a byte may occur in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The value of parameter `name`, in which only the backslashes of a quoted string are decoded. Clients send names with percent
/// signs and directories and mean them literally.
pub(super) fn parameter(header: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut rest = after(header, b';')?;
    loop {
        rest = rest.trim_ascii_start();
        let equals = rest.iter().position(|b| matches!(b, b'=' | b';'))?;
        let key = rest[..equals].trim_ascii();
        if rest[equals] == b';' {
            rest = &rest[equals + 1..];
            continue;
        }
        let (value, tail) = value(rest[equals + 1..].trim_ascii_start())?;
        if key.eq_ignore_ascii_case(name.as_bytes()) {
            return Some(value);
        }
        rest = after(tail, b';')?;
    }
}

fn after(text: &[u8], separator: u8) -> Option<&[u8]> {
    text.iter().position(|b| *b == separator).map(|at| &text[at + 1..])
}

/// Takes a token or a quoted string off the front; `None` when its quote is not closed.
fn value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|b| *b == b';').unwrap_or(text.len());
        return Some((text[..end].trim_ascii_end().to_vec(), &text[end..]));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((value, &quoted[at + 1..])),
            // Only what needs escaping is unescaped: some browsers send Windows paths with bare backslashes.
            b'\\' if matches!(quoted.get(at + 1), Some(b'"' | b'\\')) => {
                value.extend(bytes.next().map(|(_, escaped)| *escaped));
            }
            _ => value.push(*byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_offered_in_the_plainest_form_that_holds_them() {
        assert_eq!(inline("a.txt"), "inline; filename=a.txt");
        assert_eq!(inline("a b\".txt"), "inline; filename=\"a b\\\".txt\"");
        assert_eq!(inline("é 1.txt"), "inline; filename*=utf-8''%C3%A9%201.txt");
        assert_eq!(inline("a\nb"), "inline; filename*=utf-8''a%0Ab");
    }

    #[test]
    fn parameters_are_found_and_left_as_they_are() {
        let read =
            |header: &str| parameter(header.as_bytes(), "filename").map(|v| String::from_utf8(v).unwrap());
        let cases = [
            (r#"form-data; name="file"; filename="/a/b c%22.txt""#, Some("/a/b c%22.txt")),
            (r#"form-data; name="filename=x"; FileName = plain.txt ; x=y"#, Some("plain.txt")),
            (r#"form-data; filename="a\"b\\c\d""#, Some(r#"a"b\c\d"#)),
            (r#"form-data; name="file; filename=no"; filename="é;ü""#, Some("é;ü")),
            (r#"form-data; name="file""#, None),
            (r#"form-data; filename="open"#, None),
            (r#"form-data; flag; filename=x"#, Some("x")),
            (r#"form-data; filename="""#, Some("")),
            ("", None),
        ];
        for (header, expected) in cases {
            assert_eq!(read(header).as_deref(), expected, "{header}");
        }
    }
}
