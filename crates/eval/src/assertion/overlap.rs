//! Scores of how much an answer has in common with a text: BLEU, GLEU, ROUGE-N.

use std::collections::HashMap;

use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::template::value::to_text;

pub const GRADERS: &[(&str, Grader)] =
    &[("bleu", Grader::Pure(bleu)), ("gleu", Grader::Pure(gleu)), ("rouge-n", Grader::Pure(rouge_n))];

/// The verdict of a score; `not-` turns both around.
fn scored(cx: &GradingContext<'_>, name: &str, score: f64, default: f64) -> GradingResult {
    let threshold = cx.assertion.threshold.unwrap_or(default);
    let pass = (score >= threshold) != cx.assertion.negated;
    let shown = if cx.assertion.negated { 1.0 - score } else { score };
    let compared = if score >= threshold { "greater than or equal to" } else { "less than" };
    let digits = if name == "ROUGE-N" { 2 } else { 4 };
    let compared =
        format!("{name} score {score:.digits$} is {compared} threshold {}", number::text(threshold));
    let reason = if pass && name != "ROUGE-N" { "Assertion passed".to_owned() } else { compared };
    GradingResult { pass, score: shown, reason, ..GradingResult::default() }
}

fn references(cx: &GradingContext<'_>) -> Vec<String> {
    match cx.value {
        Some(serde_json::Value::Array(items)) => items.iter().map(to_text).collect(),
        Some(other) => vec![to_text(other)],
        None => Vec::new(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.to_lowercase().split_whitespace().map(str::to_owned).collect()
}

fn counts(words: &[String], length: usize) -> HashMap<&[String], usize> {
    let mut counts = HashMap::new();
    for gram in words.windows(length) {
        *counts.entry(gram).or_insert(0) += 1;
    }
    counts
}

fn bleu(cx: &GradingContext<'_>) -> GradingResult {
    let candidate = words(cx.output_text);
    let references: Vec<Vec<String>> = references(cx).iter().map(|text| words(text)).collect();
    scored(cx, "BLEU", bleu_of(&candidate, &references), 0.5)
}

fn bleu_of(candidate: &[String], references: &[Vec<String>]) -> f64 {
    if candidate.is_empty() || references.is_empty() {
        return 0.0;
    }
    let mut logs = Vec::new();
    for length in 1..=4 {
        let own = counts(candidate, length);
        let total: usize = own.values().sum();
        if total == 0 {
            continue;
        }
        let theirs: Vec<_> = references.iter().map(|reference| counts(reference, length)).collect();
        let best =
            |gram: &[String]| theirs.iter().filter_map(|counts| counts.get(gram)).max().copied().unwrap_or(0);
        let matched: usize = own.iter().map(|(gram, count)| (*count).min(best(gram))).sum();
        logs.push(if matched == 0 { 1e-7 } else { matched as f64 / total as f64 }.ln());
    }
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let closest =
        references.iter().map(Vec::len).min_by_key(|length| (length.abs_diff(candidate.len()), *length));
    let (own, closest) = (candidate.len() as f64, closest.unwrap_or(0) as f64);
    let penalty = if own > closest { 1.0 } else { (1.0 - closest / own).exp() };
    penalty * mean.exp()
}

fn gleu(cx: &GradingContext<'_>) -> GradingResult {
    let plain = |text: &str| -> Vec<String> {
        words(text).iter().map(|word| word.trim_end_matches('.').to_owned()).collect()
    };
    let candidate = plain(cx.output_text);
    let best = references(cx).iter().map(|text| gleu_of(&candidate, &plain(text))).fold(0.0, f64::max);
    scored(cx, "GLEU", best, 0.5)
}

fn gleu_of(candidate: &[String], reference: &[String]) -> f64 {
    if candidate == reference {
        return 1.0;
    }
    let (mut matched, mut own, mut theirs) = (0, 0, 0);
    for length in 1..=4 {
        let (a, b) = (counts(candidate, length), counts(reference, length));
        own += a.values().sum::<usize>();
        theirs += b.values().sum::<usize>();
        matched +=
            a.iter().map(|(gram, count)| (*count).min(b.get(gram).copied().unwrap_or(0))).sum::<usize>();
    }
    let share = |total: usize| if total == 0 { 0.0 } else { matched as f64 / total as f64 };
    share(own).min(share(theirs))
}

fn rouge_n(cx: &GradingContext<'_>) -> GradingResult {
    let reference = cx.value.map(to_text).unwrap_or_default();
    let (candidate, reference) = (treebank(cx.output_text), treebank(&reference));
    let (a, b) = (counts(&candidate, 1), counts(&reference, 1));
    let matched: usize = a.iter().map(|(gram, count)| (*count).min(b.get(gram).copied().unwrap_or(0))).sum();
    let share = |total: usize| if total == 0 { 0.0 } else { matched as f64 / total as f64 };
    let (precision, recall) = (share(candidate.len()), share(reference.len()));
    let score = if matched == 0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    scored(cx, "ROUGE-N", score, 0.75)
}

/// Pairs of words that are written as one, which the Penn Treebank splits.
const PAIRS: &[(&str, &str)] = &[
    ("can", "not"),
    ("d", "'ye"),
    ("gim", "me"),
    ("gon", "na"),
    ("got", "ta"),
    ("lem", "me"),
    ("more", "'n"),
    ("wan", "na"),
    ("'t", "is"),
    ("'t", "was"),
];

/// Words the Penn Treebank way: punctuation and contractions stand alone. The text is taken for one sentence.
fn treebank(text: &str) -> Vec<String> {
    let text = spaced(&words(text).join(" "));
    let mut text: String = text.split_whitespace().map(shortened).collect();
    for (first, second) in PAIRS {
        text = split_pair(&text, first, second);
    }
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns a text with spaces around its punctuation.
fn spaced(text: &str) -> String {
    let end = final_dot(text);
    let (mut out, mut at, mut is_quoted) = (String::new(), 0, false);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let mark = ["...", "``", "''", "--"].into_iter().find(|mark| rest.starts_with(mark));
        let piece = mark.unwrap_or(&rest[..c.len_utf8()]);
        let is_digit_next = rest[c.len_utf8()..].starts_with(|next: char| next.is_numeric());
        let alone = match piece {
            "``" | "''" | "\"" => {
                is_quoted = opens(text, at, piece, is_quoted);
                out.push_str(if is_quoted { " `` " } else { " '' " });
                at += piece.len();
                continue;
            }
            "..." | "--" => true,
            ":" | "," => !is_digit_next,
            "." => end == Some(at),
            _ => ";@#$%&?!()[]{}<>".contains(c),
        };
        match alone {
            true => out.extend([" ", piece, " "]),
            false => out.push_str(piece),
        }
        at += piece.len();
    }
    out
}

/// Returns the place of the dot that ends a text, which is not that of an abbreviation such as `e.g.` or of an ellipsis.
fn final_dot(text: &str) -> Option<usize> {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || "])}>'\"".contains(c));
    let before = text.strip_suffix('.')?;
    let mut last = before.chars().rev();
    let (first, second, third, fourth) = (last.next()?, last.next(), last.next(), last.next());
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
    let starts = fourth.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    let is_abbreviation = is_letter(Some(first)) && second == Some('.') && is_letter(third) && starts;
    (first != '.' && !is_abbreviation).then_some(before.len())
}

/// Whether quotes at a place of a text open what they are around.
fn opens(text: &str, at: usize, quote: &str, is_quoted: bool) -> bool {
    let before = text[..at].chars().next_back();
    let after = &text[at + quote.len()..];
    match quote {
        "``" => true,
        "''" => {
            let starts = after.starts_with(|c: char| c.is_alphanumeric() || "$([{".contains(c));
            if !starts || is_quoted || !before.is_some_and(may_precede) {
                return false;
            }
            let closes =
                ["``", "''", "\""].into_iter().filter_map(|mark| Some((after.find(mark)?, mark))).min();
            closes.is_some_and(|(_, mark)| mark == "''")
        }
        _ => {
            let is_last =
                after.is_empty() && before.is_some_and(|c| !c.is_whitespace() && !"([{<".contains(c));
            !is_quoted && !is_last && before.is_none_or(may_precede)
        }
    }
}

/// Whether quotes after a character may open: after a space, and after punctuation that does not end a sentence.
fn may_precede(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_whitespace() || c == '<' || (c.is_ascii_punctuation() && !".!?$+=>^`|~".contains(c)),
        false => !c.is_alphanumeric(),
    }
}

/// Returns a word with spaces around its final apostrophe and before its ending, as in `do n't`, and one behind it.
fn shortened(word: &str) -> String {
    let (word, apostrophe) = match word.strip_suffix('\'') {
        Some(start) if !start.ends_with('\'') => (start, " '"),
        _ => (word, ""),
    };
    let split = |word: &str, endings: &[&str]| {
        let ending = endings.iter().find_map(|ending| Some(word.len() - word.strip_suffix(ending)?.len()));
        let (start, end) = word.split_at(word.len() - ending.unwrap_or(0));
        (start.to_owned(), end.to_owned())
    };
    let (start, last) = split(word, &["'s", "'m", "'d"]);
    let (start, ending) = split(&start, &["n't", "'ll", "'re", "'ve"]);
    format!("{start} {ending} {last}{apostrophe} ")
}

/// Returns a text with spaces around both words of a pair that is written as one.
fn split_pair(text: &str, first: &str, second: &str) -> String {
    let (mut out, mut from) = (String::new(), 0);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, pair) in text.match_indices(&format!("{first}{second}")) {
        let after = &text[at + pair.len()..];
        let is_part = text[..at].ends_with(is_word) || after.starts_with(is_word);
        if !is_part && (pair != "wanna" || after.starts_with(' ')) {
            out.extend([&text[from..at], " ", first, " ", second, " "]);
            from = at + pair.len();
        }
    }
    out + &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_score_one() {
        let text = words("the cat sat on the mat");
        assert!((bleu_of(&text, std::slice::from_ref(&text)) - 1.0).abs() < 1e-12);
        assert_eq!(gleu_of(&text, &text), 1.0);
        assert_eq!(bleu_of(&[], &[text]), 0.0);
    }

    #[test]
    fn punctuation_stands_alone() {
        assert_eq!(treebank("Don't stop, it's 1,000."), ["do", "n't", "stop", ",", "it", "'s", "1,000", "."]);
        for (text, spaced) in [
            ("Price is $3.50 (approx. 10%) -- ok...", "price is $ 3.50 ( approx. 10 % ) -- ok ..."),
            ("a b ...", "a b ..."),
            ("ok....", "ok ... ."),
            ("See e.g.", "see e.g."),
            ("He said (no.)", "he said ( no . )"),
            ("5:30, 1:x", "5:30 , 1 : x"),
            ("a--b---c", "a -- b -- -c"),
        ] {
            assert_eq!(treebank(text).join(" "), spaced, "{text}");
        }
    }

    #[test]
    fn quotes_have_sides() {
        for (text, spaced) in [
            ("say \"hi\"", "say `` hi ''"),
            ("\"No.\" \"Yes\"", "`` no. '' `` yes ''"),
            ("say \"hi.\"", "say `` hi . ''"),
            ("a 5\" pipe", "a 5 '' pipe"),
            ("(\"a\")", "( `` a '' )"),
            ("say ''hi'' ``x", "say `` hi '' `` x"),
        ] {
            assert_eq!(treebank(text).join(" "), spaced, "{text}");
        }
    }

    #[test]
    fn words_written_as_one_are_split() {
        for (text, spaced) in [
            ("I cannot. We can", "i can not . we can"),
            ("gonna gotta gimme lemme", "gon na got ta gim me lem me"),
            ("I wanna, I wanna", "i wan na , i wan na"),
            ("'tis what 'twas", "'t is what 't was"),
            ("d'ye cannots", "d 'ye cannots"),
            ("dogs' x it's'", "dogs ' x it 's '"),
            ("I'd've, don't we'll", "i'd 've , do n't we 'll"),
        ] {
            assert_eq!(treebank(text).join(" "), spaced, "{text}");
        }
    }
}
