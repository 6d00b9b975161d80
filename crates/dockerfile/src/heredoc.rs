//! Heredocs of `RUN`, `COPY` and `ADD` (Dockerfile reference, "Here-Documents").

use crate::lex::Lex;

/// A heredoc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    /// The word that ends it, which is also the name of the file.
    pub name: String,
    /// The lines before that word, each with its end.
    pub content: String,
    /// Whether tabs at the beginning of lines are removed (`<<-`).
    pub chomp: bool,
    /// Whether variables in it are expanded: its word has no quotes.
    pub expand: bool,
}

impl Heredoc {
    /// The content without leading tabs, if those are removed.
    pub fn text(&self) -> String {
        if self.chomp {
            self.content.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
        } else {
            self.content.clone()
        }
    }
}

/// Reads a word that begins a heredoc, such as `<<EOF`, `3<<-"EOF"`; `None` for any other word.
pub(crate) fn marker(word: &str) -> Option<Heredoc> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (chomp, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let rest = rest.trim_start_matches(['\t', '\r', ' ']);
    if rest.is_empty() || rest.contains('<') {
        return None;
    }
    let name = only_word(&Lex::plain('\\'), rest)?;
    let raw = only_word(&Lex { raw_quotes: true, ..Lex::plain('\\') }, rest)?;
    let quotes = |text: &str| text.matches(['\'', '"']).count();
    Some(Heredoc { content: String::new(), chomp, expand: quotes(&name) == quotes(&raw), name })
}

fn only_word(lex: &Lex<'_>, text: &str) -> Option<String> {
    let mut words = lex.expand(text).ok()?.words;
    words.pop().filter(|_| words.is_empty())
}

/// The heredocs that a line begins, still empty; none for a line whose quotes are not closed, which is for its shell to refuse.
pub(crate) fn begun_by(line: &str) -> Vec<Heredoc> {
    let lex = Lex { raw_quotes: true, raw_escapes: true, ..Lex::plain('\\') };
    let words = lex.expand(line).map(|expanded| expanded.words).unwrap_or_default();
    words.iter().filter_map(|word| marker(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_a_word() {
        let read = |word| marker(word).map(|doc| (doc.name, doc.chomp, doc.expand));
        assert_eq!(read("<<EOF"), Some(("EOF".to_owned(), false, true)));
        assert_eq!(read("3<<-'EOF'"), Some(("EOF".to_owned(), true, false)));
        assert_eq!(read("<< EOF"), Some(("EOF".to_owned(), false, true)));
        for word in ["<<", "<<<EOF", "EOF", "<<a b", "a<<EOF", "<<''"] {
            assert_eq!(read(word), None, "{word}");
        }
    }

    #[test]
    fn a_line_may_begin_several() {
        let names = |line| begun_by(line).into_iter().map(|doc| doc.name).collect::<Vec<_>>();
        assert_eq!(names("RUN cat <<A >/a && cat << 'B' >/b"), ["A", "B"]);
        assert_eq!(names("RUN echo '<<A' x<<y $((1<<2))"), [""; 0]);
    }
}
