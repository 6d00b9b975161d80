//! The content type of a file, by its name or else by its first bytes. Pure.

use std::path::Path;

/// Number of bytes that [`of`] looks at.
pub(super) const SNIFF: usize = 512;

const BINARY: &str = "application/octet-stream";

/// The content type of a file called `name` that begins with `start`.
pub(super) fn of(name: &Path, start: &[u8]) -> &'static str {
    let extension = name.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    extension.and_then(|e| by_extension(&e)).unwrap_or_else(|| sniff(&start[..start.len().min(SNIFF)]))
}

/// The content type of a file extension, by Go's built-in table, which the original service falls back on.
fn by_extension(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "avif" => "image/avif",
        "css" => "text/css; charset=utf-8",
        "gif" => "image/gif",
        "htm" | "html" => "text/html; charset=utf-8",
        "jpeg" | "jpg" => "image/jpeg",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        "webp" => "image/webp",
        "xml" => "text/xml; charset=utf-8",
        _ => return None,
    })
}

/// The content type of the first bytes, by the signatures of common formats; others are text unless they hold control
/// characters.
fn sniff(start: &[u8]) -> &'static str {
    const SIGNATURES: [(&[u8], &str); 15] = [
        (b"%PDF-", "application/pdf"),
        (b"%!PS-Adobe-", "application/postscript"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"BM", "image/bmp"),
        (b"\x1f\x8b\x08", "application/x-gzip"),
        (b"PK\x03\x04", "application/zip"),
        (b"Rar!\x1a\x07", "application/x-rar-compressed"),
        (b"\0asm", "application/wasm"),
        (b"OggS\0", "application/ogg"),
        (b"ID3", "audio/mpeg"),
        (b"\xfe\xff", "text/plain; charset=utf-16be"),
        (b"\xff\xfe", "text/plain; charset=utf-16le"),
    ];
    if let Some((_, kind)) = SIGNATURES.iter().find(|(signature, _)| start.starts_with(signature)) {
        return kind;
    }
    if start.starts_with(b"RIFF") && start.get(8..14) == Some(b"WEBPVP") {
        return "image/webp";
    }
    let text = start.trim_ascii_start();
    let begins = |tag: &[u8]| text.get(..tag.len()).is_some_and(|head| head.eq_ignore_ascii_case(tag));
    if begins(b"<?xml") {
        return "text/xml; charset=utf-8";
    }
    let tag_ends = |tag: &[u8]| matches!(text.get(tag.len()), Some(b' ' | b'>'));
    let tags: [&[u8]; 6] = [b"<!DOCTYPE HTML", b"<HTML", b"<HEAD", b"<BODY", b"<SCRIPT", b"<TITLE"];
    if tags.iter().any(|tag| begins(tag) && tag_ends(tag)) {
        return "text/html; charset=utf-8";
    }
    let control = |b: &u8| matches!(b, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if start.iter().any(control) { BINARY } else { "text/plain; charset=utf-8" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_before_content() {
        let cases: [(&str, &[u8], &str); 9] = [
            ("a.html", b"\x89PNG\r\n\x1a\n", "text/html; charset=utf-8"),
            ("a.JSON", b"", "application/json"),
            ("a.txt", b"hello", "text/plain; charset=utf-8"),
            ("a", b"", "text/plain; charset=utf-8"),
            ("a.bin", b"\0\x01", BINARY),
            ("a.unknown", b"\x89PNG\r\n\x1a\n..", "image/png"),
            ("a", b" <!doctype html>", "text/html; charset=utf-8"),
            ("a", b"<htmlx", "text/plain; charset=utf-8"),
            (".png", b"text", "text/plain; charset=utf-8"),
        ];
        for (name, start, expected) in cases {
            assert_eq!(of(Path::new(name), start), expected, "{name} {start:?}");
        }
    }
}
