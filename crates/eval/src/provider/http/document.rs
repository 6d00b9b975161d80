//! Documents that are made for a request, so that a target of uploads needs no file.

use std::fmt::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// The text of a document that is given none.
pub const TEXT: &str = "A document made by sandcove eval for a target that takes uploads.";

/// Characters of a text that fit on the page.
const MAX_CHARS: usize = 800;
const LINE_CHARS: usize = 80;

/// Returns a PDF of one page with a text.
pub fn pdf(text: &str) -> Vec<u8> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: Vec<char> = words.join(" ").chars().take(MAX_CHARS).collect();
    let mut page = String::from("BT /F1 11 Tf 15 TL 60 740 Td\n");
    for line in text.chunks(LINE_CHARS) {
        page.push('(');
        for char in line {
            match char {
                '(' | ')' | '\\' => drop(write!(page, "\\{char}")),
                // The standard fonts have no more than Latin letters.
                ' '..='~' => page.push(*char),
                _ => page.push('?'),
            }
        }
        page.push_str(") Tj T*\n");
    }
    page.push_str("ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Count 1 /Kids [3 0 R] >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R \
         /Resources << /Font << /F1 5 0 R >> >> >>"
            .to_owned(),
        format!("<< /Length {} >>\nstream\n{page}\nendstream", page.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>".to_owned(),
    ];
    let mut file = String::from("%PDF-1.4\n");
    let mut table = String::new();
    for (index, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", index + 1);
    }
    let at = file.len();
    let count = objects.len() + 1;
    let _ = write!(
        file,
        "xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{at}\n%%EOF\n"
    );
    file.into_bytes()
}

/// Returns a PNG of one white pixel.
pub fn png() -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    // Width and height 1, 8 bits of grey.
    chunk(&mut file, b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]);
    let mut data = ZlibEncoder::new(Vec::new(), Compression::default());
    let _ = std::io::Write::write_all(&mut data, &[0, 0xff]);
    chunk(&mut file, b"IDAT", &data.finish().unwrap_or_default());
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    file.extend_from_slice(&length.to_be_bytes());
    let mut sum = Crc::new();
    sum.update(name);
    sum.update(data);
    file.extend_from_slice(name);
    file.extend_from_slice(data);
    file.extend_from_slice(&sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_documents_name_their_objects() {
        let file = String::from_utf8(pdf("a (b) \\ ä\nc")).unwrap();
        assert!(file.contains("(a \\(b\\) \\\\ ? c) Tj"), "{file}");
        let table = file.split("xref\n").nth(1).unwrap();
        for (index, line) in table.lines().skip(2).take(5).enumerate() {
            let at: usize = line[..10].parse().unwrap();
            assert!(file[at..].starts_with(&format!("{} 0 obj", index + 1)), "{line}");
        }
        let at: usize = file.split("startxref\n").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert!(file[at..].starts_with("xref"));
    }

    #[test]
    fn an_image_has_its_parts() {
        let file = png();
        assert_eq!(&file[12..16], b"IHDR");
        // The sum of the empty last part is known.
        assert!(file.ends_with(b"IEND\xae\x42\x60\x82"));
    }
}
