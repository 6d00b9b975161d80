//! Checks of HTML.

use std::sync::LazyLock;

use regex::Regex;

use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;

pub const GRADERS: &[(&str, Grader)] =
    &[("is-html", Grader::Pure(is_html)), ("contains-html", Grader::Pure(contains_html))];

/// Elements of HTML that people write.
const ELEMENTS: &[&str] = &[
    "a",
    "abbr",
    "address",
    "article",
    "aside",
    "audio",
    "b",
    "blockquote",
    "body",
    "br",
    "button",
    "canvas",
    "caption",
    "cite",
    "code",
    "col",
    "dd",
    "del",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "em",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "iframe",
    "img",
    "input",
    "ins",
    "kbd",
    "label",
    "legend",
    "li",
    "link",
    "main",
    "mark",
    "meta",
    "nav",
    "ol",
    "optgroup",
    "option",
    "p",
    "picture",
    "pre",
    "progress",
    "q",
    "s",
    "samp",
    "script",
    "section",
    "select",
    "small",
    "source",
    "span",
    "strong",
    "style",
    "sub",
    "summary",
    "sup",
    "svg",
    "table",
    "tbody",
    "td",
    "template",
    "textarea",
    "tfoot",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "u",
    "ul",
    "var",
    "video",
];
const MAX_LENGTH: usize = 10 * 1024 * 1024;

/// A tag in a text.
struct Tag<'t> {
    name: String,
    text: &'t str,
    start: usize,
    end: usize,
}

fn tags(text: &str) -> Vec<Tag<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find('<').map(|offset| at + offset) {
        at = start + 1;
        let rest = text[at..].trim_start_matches('/');
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let Some(end) = text[at..].find('>').map(|offset| at + offset + 1) else { break };
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        found.push(Tag { name: name.to_lowercase(), text: &text[start..end], start, end });
        at = end;
    }
    found
}

fn real(tag: &Tag<'_>) -> bool {
    ELEMENTS.contains(&tag.name.as_str()) || tag.name.contains('-')
}

fn is_html(cx: &GradingContext<'_>) -> GradingResult {
    let holds = whole(cx.output_text.trim());
    GradingResult::of(cx.assertion, holds, || match cx.assertion.negated {
        true => "Output is valid HTML, expected it not to be".to_owned(),
        false => unwrapped(cx.output_text.trim()).to_owned(),
    })
}

/// Returns why a text is not HTML and nothing else.
fn unwrapped(text: &str) -> &'static str {
    match text {
        "" => "Output is empty",
        text if text.len() > MAX_LENGTH => "Output exceeds maximum size limit",
        text if text.starts_with("<?xml") => "Output appears to be XML, not HTML",
        text if bare_text(text) => "Output must be wrapped in HTML tags",
        _ => "Output does not contain recognized HTML elements",
    }
}

/// Whether a text is nothing but HTML: no bare text outside elements, unless a body is written.
fn whole(text: &str) -> bool {
    if text.is_empty() || text.len() > MAX_LENGTH || text.starts_with("<?xml") {
        return false;
    }
    tags(text).iter().any(real) && !bare_text(text)
}

/// Whether there is text outside elements, and no body is written.
fn bare_text(text: &str) -> bool {
    let tags = tags(text);
    if tags.iter().any(|tag| tag.name == "body" && !tag.text.starts_with("</")) {
        return false;
    }
    let (mut depth, mut at) = (0usize, 0);
    for tag in &tags {
        if depth == 0 && bare(&text[at..tag.start]) {
            return true;
        }
        let empty =
            matches!(tag.name.as_str(), "br" | "hr" | "img" | "input" | "link" | "meta" | "source" | "col");
        if tag.text.starts_with("</") {
            depth = depth.saturating_sub(1);
        } else if !empty && !tag.text.ends_with("/>") {
            depth += 1;
        }
        at = tag.end;
    }
    depth == 0 && bare(&text[at..])
}

/// Whether text between tags says something: comments and the doctype do not.
fn bare(between: &str) -> bool {
    let mut rest = between.trim();
    while let Some(inner) = rest.strip_prefix("<!") {
        let end = if inner.starts_with("--") {
            inner.find("-->").map(|at| at + 3)
        } else {
            inner.find('>').map(|at| at + 1)
        };
        match end {
            Some(end) => rest = inner[end..].trim_start(),
            None => return false,
        }
    }
    !rest.is_empty()
}

fn contains_html(cx: &GradingContext<'_>) -> GradingResult {
    let holds = cx.output_text.len() <= MAX_LENGTH && points(cx.output_text) >= 2;
    GradingResult::of(cx.assertion, holds, || {
        format!("Expected output to {}contain HTML content", if cx.assertion.negated { "not " } else { "" })
    })
}

/// Signs of HTML in a text, and what each counts. Other markup has the same.
static SIGNS: LazyLock<Vec<(Regex, usize)>> = LazyLock::new(|| {
    let elements = "html|head|body|div|span|p|a|img|h[1-6]|ul|ol|li|table|tr|td|th|form|input|button|script|style|link|meta|br|hr";
    let signs = [
        (r"<[a-zA-Z][a-zA-Z0-9-]*(\s[^>]*)?>", 1),
        (r"</[a-zA-Z][a-zA-Z0-9-]*\s*>", 1),
        (r"<[a-zA-Z][a-zA-Z0-9-]*(\s[^>]*)?/>", 1),
        (r"&([a-zA-Z]+|#[0-9]+|#x[0-9a-fA-F]+);", 1),
        (r"(?i)<!doctype\s+html", 2),
        (r"(?s)<!--.*?-->", 1),
        (r#"\s[a-zA-Z-]+=\s*["'][^"']*["']"#, 1),
        (&format!(r"(?i)<({elements})\b"), 2),
    ];
    signs.iter().filter_map(|(pattern, counts)| Some((Regex::new(pattern).ok()?, *counts))).collect()
});

/// Returns the sum of the signs of HTML in a text.
fn points(text: &str) -> usize {
    SIGNS.iter().filter(|(sign, _)| sign.is_match(text)).map(|(_, counts)| counts).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_is_told_from_text() {
        assert!(whole("<!DOCTYPE html><html><body>hi</body></html>"));
        assert!(whole("<div>hi <b>there</b></div>"));
        assert!(!whole("words <b>and</b> more"));
        assert!(!whole("just words"));
        assert!(points("words <b>and</b> more") >= 2);
        assert!(points("a < b and c > d") < 2);
        assert!(points("<?xml version=\"1.0\"?><r/>") >= 2);
        assert!(points("an <article> or &amp;") == 2 && points("an <article> alone") < 2);
    }
}
