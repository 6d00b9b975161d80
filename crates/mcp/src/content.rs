//! Contents of answers: text and pictures, of limited size.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Characters of output that an answer may have: agents pay for each, and the end says most.
pub(crate) const MAX_TEXT: usize = 50_000;

/// Length of all pictures of an answer as base64, bytes: no model takes more, and a sandbox makes them without end.
pub(crate) const MAX_PICTURES: usize = 8 << 20;

/// Bytes that are read of a file: the largest picture, and more than what is shown of a text.
pub(crate) const MAX_FILE: usize = MAX_PICTURES / 4 * 3;

/// The end of a text that may become long.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    text: String,
    lost: usize,
}

impl Tail {
    /// Adds text.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        // Seldom, so that not every piece moves all that came before.
        if self.text.len() > 2 * MAX_TEXT {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if let Some(excess) = self.text.len().checked_sub(MAX_TEXT) {
            let at = self.text.ceil_char_boundary(excess);
            self.text.drain(..at);
            self.lost += at;
        }
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The last line that is not blank.
    pub(crate) fn last_line(&self) -> &str {
        let line =
            self.text.lines().rev().map(str::trim_end).find(|line| !line.is_empty()).unwrap_or_default();
        &line[line.ceil_char_boundary(line.len().saturating_sub(200))..]
    }

    /// The text, with a note about what is missing at its start.
    pub(crate) fn finish(mut self) -> String {
        self.cut();
        match self.lost {
            0 => self.text,
            lost => format!("[the first {lost} bytes are left out]\n{}", self.text),
        }
    }
}

/// Text as a part of an answer.
pub(crate) fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

/// A picture as a part of an answer.
pub(crate) fn picture(kind: &str, base64: &str) -> Value {
    json!({ "type": "image", "mimeType": kind, "data": base64.split_whitespace().collect::<String>() })
}

/// Parts of an answer whose size a sandbox chooses, as results of code are.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Value>,
    size: usize,
    lost: usize,
}

impl Parts {
    /// Adds text, unless there is too much already.
    pub(crate) fn text(&mut self, words: String) {
        self.add(words.len(), || text(words));
    }

    /// Adds a picture, unless there is too much already.
    pub(crate) fn picture(&mut self, kind: &str, base64: &str) {
        self.add(base64.len(), || picture(kind, base64));
    }

    /// Notes a part that is too large to be read.
    pub(crate) fn leave_out(&mut self) {
        self.lost += 1;
    }

    fn add(&mut self, size: usize, part: impl FnOnce() -> Value) {
        // Small ones are not free either.
        self.size += size + 100;
        if self.size > MAX_PICTURES {
            self.size -= size + 100;
            self.lost += 1;
        } else {
            self.parts.push(part());
        }
    }

    /// The parts, with a note about those that are missing.
    pub(crate) fn finish(mut self) -> Vec<Value> {
        if self.lost > 0 {
            let lost = self.lost;
            self.parts.push(text(format!("[results are left out because they are too large: {lost}]")));
        }
        self.parts
    }
}

/// A file as a part of an answer, by its first bytes and its length.
///
/// # Errors
/// An error if the file is neither text nor a picture, or a picture that is too large: a text for the model that asked.
pub(crate) fn file(bytes: &[u8], length: u64) -> Result<Value, String> {
    let kind = match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    };
    if let Some(kind) = kind {
        if length > bytes.len() as u64 || bytes.len() > MAX_FILE {
            return Err(format!("the picture is too large for an answer ({length} bytes)"));
        }
        return Ok(picture(kind, &STANDARD.encode(bytes)));
    }
    let whole = std::str::from_utf8(bytes).or_else(|error| match error.error_len() {
        // A character of which the rest was not read.
        None if length > bytes.len() as u64 => {
            Ok(std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
        }
        _ => Err(format!("the file is neither text nor a picture ({length} bytes)")),
    })?;
    let shown = &whole[..whole.floor_char_boundary(MAX_TEXT)];
    match length - shown.len() as u64 {
        0 => Ok(text(shown)),
        lost => Ok(text(format!("{shown}\n[{lost} more bytes are left out]"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_long_output_is_kept() {
        let mut tail = Tail::default();
        for number in 0..100_000 {
            tail.push(&format!("ü{number}\n"));
        }
        assert_eq!(tail.last_line(), "ü99999");
        let text = tail.finish();
        assert!(text.len() < MAX_TEXT + 100 && text.starts_with("[the first ") && text.ends_with("ü99999\n"));
    }

    #[test]
    fn results_of_any_number_and_size_make_a_bounded_answer() {
        let mut parts = Parts::default();
        let picture = "A".repeat(MAX_PICTURES / 2 - 100);
        for _ in 0..10 {
            parts.picture("image/png", &picture);
        }
        let parts = parts.finish();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2], text("[results are left out because they are too large: 8]"));
        let mut parts = Parts::default();
        for _ in 0..1_000_000 {
            parts.text(String::new());
        }
        assert!(parts.finish().len() <= MAX_PICTURES / 100 + 1);
        let mut png = b"\x89PNG".to_vec();
        assert!(file(&png, 4).is_ok());
        assert!(file(&png, 5).unwrap_err().contains("too large"));
        png.resize(MAX_PICTURES, 0);
        assert!(file(&png, MAX_PICTURES as u64).unwrap_err().contains("too large"));
    }

    #[test]
    fn files_are_what_they_hold() {
        assert_eq!(file("ä".as_bytes(), 2).unwrap(), text("ä"));
        assert_eq!(file(b"\x89PNG\r\n", 6).unwrap()["mimeType"], "image/png");
        assert!(file(&[0xff, 0], 2).unwrap_err().contains("2 bytes"));
        assert_eq!(file(&"ä".as_bytes()[..1], 20).unwrap(), text("\n[20 more bytes are left out]"));
        assert!(file(&"ä".as_bytes()[..1], 1).is_err());
        assert!(
            file("ä".repeat(MAX_TEXT).as_bytes(), 2 * MAX_TEXT as u64).unwrap()["text"]
                .as_str()
                .unwrap()
                .ends_with(" bytes are left out]")
        );
    }
}
