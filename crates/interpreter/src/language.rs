//! Names of languages, as clients write them and as contexts have them.

use std::fmt;

/// A normalised language name (contract: interpreter, section 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Language(String);

impl Language {
    /// The language of requests that name none.
    pub fn python() -> Self {
        Self("python".to_owned())
    }

    /// The second language whose default context always exists.
    pub fn javascript() -> Self {
        Self("javascript".to_owned())
    }

    /// The language that a client means, or `None` for an absent or empty name.
    pub fn from_request(name: Option<&str>) -> Option<Self> {
        let name = name?.trim().to_lowercase();
        match name.as_str() {
            "" => None,
            "js" => Some(Self::javascript()),
            "ts" => Some(Self("typescript".to_owned())),
            // Kernels append the version of the standard.
            _ if name.starts_with("c++") => Some(Self("cpp".to_owned())),
            _ => Some(Self(name)),
        }
    }

    /// Whether the language comes with the layer of further languages of the default template. C++ needs no more than a compiler.
    pub fn is_further(&self) -> bool {
        matches!(self.as_str(), "r" | "java" | "ruby")
    }

    /// The normalised name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_lowered_and_expanded() {
        let normalised = |name| Language::from_request(Some(name)).map(|language| language.to_string());
        assert_eq!(normalised(" Python ").as_deref(), Some("python"));
        assert_eq!(normalised("JS").as_deref(), Some("javascript"));
        assert_eq!(normalised("ts").as_deref(), Some("typescript"));
        assert_eq!(normalised("C++17").as_deref(), Some("cpp"));
        assert_eq!(normalised("Octave").as_deref(), Some("octave"));
        assert_eq!(normalised("  "), None);
        assert_eq!(Language::from_request(None), None);
    }
}
