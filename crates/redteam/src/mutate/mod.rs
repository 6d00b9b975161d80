//! Mutators: programs that do the same and look different.

mod answer;
mod bash;
mod javascript;
mod lexer;
mod python;
#[cfg(test)]
pub(crate) mod validity;

use crate::probe::Language;

pub use answer::{FENCE, WRAPPERS, wrap};

/// A transformation of a program.
pub type Mutator = fn(&str) -> String;

/// Returns the mutators of a language with their names: `exec-base64`.
pub fn of(language: Language) -> &'static [(&'static str, Mutator)] {
    match language {
        Language::Python => python::MUTATORS,
        Language::JavaScript => javascript::MUTATORS,
        Language::Bash => bash::MUTATORS,
        Language::Text => &[],
    }
}

/// Applies the mutator with this name; none if the language has no such mutator.
pub fn apply(language: Language, name: &str, code: &str) -> Option<String> {
    of(language).iter().find(|(known, _)| *known == name).map(|(_, mutator)| mutator(code))
}

/// Returns the names of the mutators of all languages, without repetitions.
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for language in [Language::Python, Language::JavaScript, Language::Bash] {
        for (name, _) in of(language) {
            if !names.contains(name) {
                names.push(*name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe;

    #[test]
    fn mutated_programs_are_valid_programs() {
        for probe in probe::builtin() {
            for (name, mutator) in of(probe.language) {
                let mutated = mutator(&probe.code);
                assert!(validity::holds(probe.language, &mutated), "{} by {name}:\n{mutated}", probe.id);
                assert!(
                    !["{{", "{%", "{#"].iter().any(|mark| mutated.contains(mark)),
                    "{} by {name}",
                    probe.id
                );
            }
        }
    }

    #[test]
    fn programs_change() {
        let code = "import os\nprint(os.getcwd(), 'text')\n";
        for (name, mutator) in of(Language::Python) {
            assert_ne!(mutator(code), code, "{name}");
        }
    }
}
