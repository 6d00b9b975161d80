//! Python's text in pieces: strings, comments, and what is neither.

/// A piece of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Names, operators and spaces.
    Code(&'a str),
    /// A string with its prefix and quotes.
    String(&'a str),
    /// A comment, without the end of the line.
    Comment(&'a str),
}

/// Splits a program into pieces, whose texts in a row are the program.
pub(super) fn pieces(code: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    let bytes = code.as_bytes();
    while at < bytes.len() {
        let end = match bytes[at] {
            b'#' => code[at..].find('\n').map_or(code.len(), |length| at + length),
            b'"' | b'\'' => string_end(code, at),
            _ => {
                at += 1;
                continue;
            }
        };
        let is_comment = bytes[at] == b'#';
        // The letters before the quotes belong to the string, if they are no name.
        let prefix = if is_comment { 0 } else { prefix_length(&code[start..at]) };
        if start < at - prefix {
            pieces.push(Piece::Code(&code[start..at - prefix]));
        }
        let text = &code[at - prefix..end];
        pieces.push(if is_comment { Piece::Comment(text) } else { Piece::String(text) });
        (start, at) = (end, end);
    }
    if start < code.len() {
        pieces.push(Piece::Code(&code[start..]));
    }
    pieces
}

fn string_end(code: &str, at: usize) -> usize {
    let quote = &code[at..=at];
    let triple = quote.repeat(3);
    let mark = if code[at..].starts_with(&triple) { triple.as_str() } else { quote };
    let mut end = at + mark.len();
    while end < code.len() {
        if code[end..].starts_with('\\') {
            end += 1 + code[end + 1..].chars().next().map_or(0, char::len_utf8);
        } else if code[end..].starts_with(mark) {
            return end + mark.len();
        } else {
            end += code[end..].chars().next().map_or(1, char::len_utf8);
        }
    }
    code.len()
}

fn prefix_length(before: &str) -> usize {
    let word = before.len() - before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
    let letters = &before[before.len() - word..];
    let known = ["r", "b", "f", "u", "rb", "br", "fr", "rf"];
    if known.contains(&letters.to_ascii_lowercase().as_str()) { word } else { 0 }
}

/// Returns the program with its code and its strings replaced.
pub(super) fn rewrite(
    code: &str,
    names: impl Fn(&str) -> String,
    strings: impl Fn(&str) -> String,
) -> String {
    pieces(code)
        .into_iter()
        .map(|piece| match piece {
            Piece::Code(text) => names(text),
            Piece::String(text) => strings(text),
            Piece::Comment(text) => text.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_told_apart() {
        let code = "a = rb'x\\'y' # it's\nb = f\"\"\"q\"\n\"\"\" + c";
        let found = pieces(code);
        assert_eq!(found[0], Piece::Code("a = "));
        assert_eq!(found[1], Piece::String("rb'x\\'y'"));
        assert_eq!(found[3], Piece::Comment("# it's"));
        assert_eq!(found[5], Piece::String("f\"\"\"q\"\n\"\"\""));
        let joined: String = found
            .iter()
            .map(|piece| match piece {
                Piece::Code(text) | Piece::String(text) | Piece::Comment(text) => *text,
            })
            .collect();
        assert_eq!(joined, code);
    }
}
