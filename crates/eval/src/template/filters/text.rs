//! Filters of texts.

use serde_json::Value;

use super::super::value::Val;

pub(super) fn capitalize(text: &str) -> String {
    let lower = text.to_lowercase();
    let mut chars = lower.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// JSON text, indented if asked.
pub(super) fn dump(of: &Val, spaces: &Val) -> String {
    let Val::Json(value) = of else { return String::new() };
    let indent = match spaces {
        Val::Json(Value::Number(n)) => " ".repeat((n.as_u64().unwrap_or(0) as usize).min(10)),
        Val::Json(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    super::super::json::stringify(value, &indent)
}

pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' => out.push_str("&#92;"),
            c => out.push(c),
        }
    }
    out
}

pub(super) fn striptags(text: &str, keep_lines: bool) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        let tag = &rest[at..];
        let is_tag = tag.trim_start_matches(['<', '/']).starts_with(|c: char| c.is_ascii_alphabetic());
        let end = if tag.starts_with("<!--") {
            tag.find("-->").map(|end| end + 3)
        } else if is_tag {
            tag.find('>').map(|end| end + 1)
        } else {
            None
        };
        match end {
            Some(end) => rest = &tag[end..],
            None => {
                out.push('<');
                rest = &tag[1..];
            }
        }
    }
    out.push_str(rest);
    if !keep_lines {
        return out.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    let squeeze = |line: &str| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let mut text = out.trim().replace("\r\n", "\n").split('\n').map(squeeze).collect::<Vec<_>>().join("\n");
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

pub(super) fn truncate(text: &str, length: usize, kill_words: bool, end: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= length {
        return text.to_owned();
    }
    let cut = if kill_words {
        length
    } else {
        (0..=length).rev().find(|at| chars.get(*at) == Some(&' ')).unwrap_or(length)
    };
    chars[..cut].iter().collect::<String>() + end
}

pub(super) fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

pub(super) fn urlize(text: &str) -> String {
    let link = |word: &str| {
        let trimmed = word.trim_start_matches(['(', '<']).trim_end_matches(['.', ',', ')', '\n', '>']);
        if trimmed.starts_with("http://") || trimmed.starts_with("https://") {
            format!("<a href=\"{trimmed}\">{trimmed}</a>")
        } else if trimmed.starts_with("www.") {
            format!("<a href=\"http://{trimmed}\">{trimmed}</a>")
        } else {
            word.to_owned()
        }
    };
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        out.push_str(&link(&rest[..end]));
        let blank = rest[end..].find(|c: char| !c.is_whitespace()).map_or(rest.len(), |at| end + at);
        out.push_str(&rest[end..blank]);
        rest = &rest[blank..];
    }
    out
}
