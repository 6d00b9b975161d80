//! Porter's stemmer, as the package `natural` has it: what METEOR compares words by.

/// Suffixes with what replaces them, where the rest has a vowel followed by a consonant.
const SECOND: &[(&str, &str)] = &[
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];
const THIRD: &[(&str, &str)] = &[
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];
/// Suffixes that go where the rest is long; of two that fit, the longer one.
const FOURTH: &[&str] = &[
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
];

/// Returns the stem of a word in lower case.
pub fn stem(word: &str) -> String {
    if word.chars().count() < 3 {
        return word.to_owned();
    }
    let word = third_person(past(&plural(word)));
    let word = replaced(&replaced(&word, SECOND), THIRD);
    ending(shortened(word))
}

fn is_vowel(c: char) -> bool {
    "aeiou".contains(c)
}

/// Marks a `y` after consonants as a vowel: consonants with it become `C` and `V`. `each` takes one consonant only.
fn marked(word: &str, each: bool) -> Vec<char> {
    let chars: Vec<char> = word.chars().collect();
    let mut marked = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let consonants = chars[at..].iter().take_while(|c| !is_vowel(**c) && **c != 'y').count();
        let run = if each { consonants.min(1) } else { consonants };
        if run > 0 && chars.get(at + run) == Some(&'y') {
            marked.extend(['C', 'V']);
            at += run + 1;
        } else {
            marked.push(chars[at]);
            at += 1;
        }
    }
    marked
}

/// Returns groups of consonants as `C` and groups of vowels as `V`.
fn groups(word: &str) -> Vec<char> {
    let mut groups: Vec<char> = Vec::new();
    let mut last = ' ';
    for c in marked(word, false) {
        let group = if c == 'V' || is_vowel(c) { 'V' } else { 'C' };
        let goes_on = groups.last() == Some(&group) && (group == 'C' || is_vowel(c) && is_vowel(last));
        if !goes_on {
            groups.push(group);
        }
        last = c;
    }
    groups
}

/// Returns how often consonants follow vowels.
fn measure(word: &str) -> f64 {
    if word.is_empty() {
        return -1.0;
    }
    let groups = groups(word);
    let edges = usize::from(groups.first() == Some(&'C')) + usize::from(groups.last() == Some(&'V'));
    groups.len().saturating_sub(edges) as f64 / 2.0
}

/// Whether the letters before the last `skip` are a consonant, a vowel and a consonant.
fn ends_short(word: &str, skip: usize) -> bool {
    let letters: Vec<char> =
        marked(word, true).iter().map(|c| if *c == 'V' || is_vowel(*c) { 'V' } else { 'C' }).collect();
    letters[..letters.len().saturating_sub(skip)].ends_with(&['C', 'V', 'C'])
}

fn ends_double(word: &str) -> bool {
    let mut last = word.chars().rev();
    last.next().is_some_and(|c| !is_vowel(c) && last.next() == Some(c))
}

fn plural(word: &str) -> String {
    match word.strip_suffix("es").filter(|rest| rest.ends_with("ss") || rest.ends_with('i')) {
        Some(rest) => rest.to_owned(),
        None if word.ends_with('s') && !word.ends_with("ss") => word[..word.len() - 1].to_owned(),
        None => word.to_owned(),
    }
}

fn past(word: &str) -> String {
    if let Some(rest) = word.strip_suffix("eed") {
        return if measure(rest) > 0.0 { format!("{rest}ee") } else { word.to_owned() };
    }
    let rest = word.strip_suffix("ed").or_else(|| word.strip_suffix("ing"));
    let Some(rest) = rest.filter(|rest| groups(rest).contains(&'V')) else { return word.to_owned() };
    if ["at", "bl", "iz"].iter().any(|end| rest.ends_with(end)) {
        format!("{rest}e")
    } else if ends_double(rest) && !rest.ends_with(['l', 's', 'z']) {
        let mut chars = rest.chars();
        chars.next_back();
        chars.as_str().to_owned()
    } else if measure(rest) == 1.0 && ends_short(rest, 0) && !rest.ends_with(['w', 'x', 'y']) {
        format!("{rest}e")
    } else {
        rest.to_owned()
    }
}

fn third_person(word: String) -> String {
    let groups = groups(&word);
    match word.strip_suffix('y') {
        Some(rest) if groups[..groups.len().saturating_sub(1)].contains(&'V') => format!("{rest}i"),
        _ => word,
    }
}

fn replaced(word: &str, suffixes: &[(&str, &str)]) -> String {
    let mut replaced = word.to_owned();
    for (suffix, by) in suffixes {
        if word.strip_suffix(suffix).is_some_and(|rest| measure(rest) > 0.0)
            && let Some(rest) = replaced.strip_suffix(suffix)
        {
            replaced = format!("{rest}{by}");
        }
    }
    replaced
}

fn shortened(word: String) -> String {
    let longest = FOURTH.iter().filter(|suffix| word.len() > suffix.len() && word.ends_with(**suffix));
    let rest = longest.max_by_key(|suffix| suffix.len()).map(|suffix| &word[..word.len() - suffix.len()]);
    let noun = || word.strip_suffix("ion").filter(|rest| rest.len() > 1 && rest.ends_with(['s', 't']));
    let fits = |rest: &&str| measure(rest) > 1.0;
    rest.filter(fits).or_else(|| noun().filter(fits)).map(str::to_owned).unwrap_or(word)
}

fn ending(word: String) -> String {
    let rest = word.strip_suffix('e').unwrap_or(&word);
    let long = measure(rest);
    let is_short = ends_short(&word, 1) && !word.chars().rev().nth(1).is_some_and(|c| "wxy".contains(c));
    let word = if long > 1.0 || long == 1.0 && !is_short { rest.to_owned() } else { word };
    match word.strip_suffix('l') {
        Some(rest) if rest.ends_with('l') && measure(&word) > 1.0 => rest.to_owned(),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_those_of_the_package() {
        // Made by `natural` 8.1.0.
        for (word, expected) in include!("stems.in") {
            assert_eq!(stem(word), expected, "{word}");
        }
    }
}
