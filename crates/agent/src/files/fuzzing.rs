//! Properties of multipart bodies and of headers of the files API; see [`crate::fuzzing`].

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};

use super::conditions::{Selection, select};
use super::disposition::{inline, parameter};
use super::multipart::Multipart;
use super::{encoding, metadata_headers};

/// The name, file name and content of a part.
type Parsed = (bool, Option<Vec<u8>>, Vec<u8>);

/// Checks multipart bodies. Byte 0 says how the body is cut into pieces. The content type follows up to the first line break,
/// then the body: once as it is, once as the contents of well-formed parts.
pub fn multipart(input: &[u8]) {
    let [cut, rest @ ..] = input else { return };
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (content_type, body) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    as_it_is(content_type, body, usize::from(*cut).max(1));
    put_together(body, usize::from(*cut).max(1));
}

fn as_it_is(content_type: &[u8], body: &[u8], cut: usize) {
    let (parts, whole) = parse(content_type, body, body.len().max(1));
    assert_eq!((parts.clone(), whole), parse(content_type, body, cut), "depends on how the body was cut");
    let total: usize = parts.iter().map(|(_, _, content)| content.len()).sum();
    assert!(total <= body.len());
    for (_, _, content) in &parts {
        assert!(content.is_empty() || body.windows(content.len()).any(|window| window == content));
    }
}

/// Checks well-formed parts, whose file names and contents are in `body`, separated by zero bytes.
fn put_together(body: &[u8], cut: usize) {
    let mut pieces = body.split(|byte| *byte == 0);
    let mut expected: Vec<Parsed> = Vec::new();
    while let (Some(name), Some(content)) = (pieces.next(), pieces.next()) {
        let fits_a_header = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        let name: Vec<u8> = name.iter().copied().filter(fits_a_header).collect();
        expected.push((expected.len() % 3 != 2, Some(name), content.to_vec()));
    }
    let boundary = (0..)
        .map(|number| format!("b{number}"))
        .find(|boundary| expected.iter().all(|(_, _, content)| !holds(content, boundary.as_bytes())));
    let boundary = boundary.unwrap_or_default();
    let mut body = Vec::new();
    for (is_file, name, content) in &expected {
        let field = if *is_file { "file" } else { "other" };
        body.extend(
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"").bytes(),
        );
        for byte in name.iter().flatten() {
            if matches!(byte, b'"' | b'\\') {
                body.push(b'\\');
            }
            body.push(*byte);
        }
        body.extend(b"\"\r\n\r\n");
        body.extend(content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    let content_type = format!("multipart/form-data; boundary={boundary}");
    let (parts, whole) = parse(content_type.as_bytes(), &body, cut);
    assert!(whole, "a proper body was refused");
    assert_eq!(parts, expected);
}

/// Checks the headers of a download and of an upload. Byte 0 is the size of the file, the first line its name, and each line after
/// that a header.
pub fn file_headers(input: &[u8]) {
    let [size, rest @ ..] = input else { return };
    let mut lines = rest.split(|byte| *byte == b'\n');
    let name = lines.next().unwrap_or_default();
    let headers: HeaderMap = lines.filter_map(header).collect();
    let size = u64::from(*size);
    match select(&headers, size, 784_111_777) {
        Selection::Part { start, length } => {
            assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= size));
        }
        Selection::Whole
        | Selection::NotModified
        | Selection::PreconditionFailed
        | Selection::Unsatisfiable => {}
    }
    for value in headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        let accepted = encoding::accepted(value);
        assert!(accepted.best.is_some() || !accepted.identity);
    }
    if let Ok(metadata) = metadata_headers::read(&headers) {
        let total: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(total <= 4096 && metadata.keys().all(|key| !key.is_empty() && key.len() <= 246));
    }
    disposition(name);
}

/// Checks that a name in a `Content-Disposition` is one header, and that it is read back where it is not percent-encoded.
fn disposition(name: &[u8]) {
    let _ = parameter(name, "filename");
    let Ok(name) = std::str::from_utf8(name) else { return };
    let header = inline(name);
    assert!(HeaderValue::from_str(&header).is_ok(), "{header:?} is no header");
    if header.starts_with("inline; filename=") {
        assert_eq!(parameter(header.as_bytes(), "filename").as_deref(), Some(name.as_bytes()));
    }
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
}

fn holds(content: &[u8], text: &[u8]) -> bool {
    content.windows(text.len()).any(|window| window == text)
}

/// Reads the complete parts of a body in pieces of `cut` bytes, and whether the body ended well.
fn parse(content_type: &[u8], body: &[u8], cut: usize) -> (Vec<Parsed>, bool) {
    thread_local! {
        static RUNTIME: Option<tokio::runtime::Runtime> =
            tokio::runtime::Builder::new_current_thread().build().ok();
    }
    let pieces: Vec<_> = body.chunks(cut).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let mut parts = Vec::new();
    let reading = async {
        let mut multipart = Multipart::new(content_type, Box::pin(stream::iter(pieces)))?;
        while let Some(part) = multipart.next().await? {
            let (is_file, name) = (part.is_called("file"), part.filename());
            let content: Vec<Bytes> = part.try_collect().await?;
            parts.push((is_file, name, content.concat()));
        }
        Ok::<_, super::error::Error>(())
    };
    let whole =
        RUNTIME.with(|runtime| runtime.as_ref().is_some_and(|runtime| runtime.block_on(reading).is_ok()));
    (parts, whole)
}
