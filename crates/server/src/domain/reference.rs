//! References to templates, `[namespace/]alias[:tag]` (contract: control-plane, section 4.2). The id of a build in place of a
//! tag pins that build (contract: templates, section 4).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::Error;

/// Maximum length of a name, and of a tag, characters.
const MAX_NAME: usize = 128;

/// The name of a template in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    namespace: Option<String>,
    alias: String,
    /// The tag, or the id of a build as text.
    tag: Option<String>,
    build: Option<Uuid>,
}

/// A reference that does not follow the grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}'")]
pub struct InvalidReference(String);

impl From<InvalidReference> for Error {
    fn from(invalid: InvalidReference) -> Self {
        Self::InvalidTemplateReference(invalid.to_string())
    }
}

impl Reference {
    /// The tag of references without one.
    pub const DEFAULT_TAG: &str = "default";

    /// The team slug in front of the slash.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name or template id.
    pub fn alias(&self) -> &str {
        &self.alias
    }

    /// The tag; `default` when the reference names none. The id of the build when the reference pins one.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(Self::DEFAULT_TAG)
    }

    /// The build that the reference pins; such a reference is no name for something new.
    pub fn build(&self) -> Option<Uuid> {
        self.build
    }

    /// Whether the reference names a tag, or pins a build.
    pub fn has_tag(&self) -> bool {
        self.tag.is_some()
    }

    /// The reference without its tag.
    pub fn without_tag(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.alias),
            None => self.alias.clone(),
        }
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let invalid = || InvalidReference(text.chars().take(128).collect());
        let lower = text.trim().to_lowercase();
        let (name, tag) = match lower.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (lower.as_str(), None),
        };
        let (namespace, alias) = match name.split_once('/') {
            Some((namespace, alias)) => (Some(namespace), alias),
            None => (None, name),
        };
        if !namespace.is_none_or(|n| is_made_of(n, "-_"))
            || !is_made_of(alias, "-_")
            || !tag.is_none_or(|tag| is_made_of(tag, "-_."))
        {
            return Err(invalid());
        }
        let build = tag.and_then(|tag| Uuid::parse_str(tag).ok());
        let tag = match (build, tag) {
            (Some(build), _) => Some(build.to_string()),
            (None, tag) => tag.map(str::to_owned),
        };
        Ok(Self { namespace: namespace.map(str::to_owned), alias: alias.to_owned(), tag, build })
    }
}

fn is_made_of(text: &str, more: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c);
    !text.is_empty() && text.len() <= MAX_NAME && text.chars().all(allowed)
}

/// A tag as it is stored: lowercase, without surrounding space. `None` when it does not follow the grammar, or could be
/// mistaken for the id of a build.
pub fn normalized_tag(text: &str) -> Option<String> {
    let tag = text.trim().to_lowercase();
    (is_made_of(&tag, "-_.") && Uuid::parse_str(&tag).is_err()).then_some(tag)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_tag())?;
        match &self.tag {
            Some(tag) => write!(f, ":{tag}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_trimmed_and_lowercased() {
        let reference: Reference = " Team/Name:V1.0 ".parse().unwrap();
        assert_eq!(reference.namespace(), Some("team"));
        assert_eq!(reference.alias(), "name");
        assert_eq!(reference.tag(), "v1.0");
        assert_eq!("base".parse::<Reference>().unwrap().tag(), "default");
    }

    #[test]
    fn references_outside_the_grammar_are_refused() {
        for bad in ["", "/", "a/", "/a", "a:", "a b", "a/b/c", "a:b:c", "ä", "../a", &"a".repeat(129)] {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_id_of_a_build_is_no_tag() {
        let build = Uuid::from_u128(7);
        for text in [format!("a:{build}"), format!("A:{}", build.simple().to_string().to_uppercase())] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!((reference.build(), reference.tag()), (Some(build), build.to_string().as_str()));
        }
        assert_eq!("a:v1".parse::<Reference>().unwrap().build(), None);
        assert_eq!(normalized_tag(" V1.0 ").as_deref(), Some("v1.0"));
        for bad in ["", "a b", "a/b", &build.to_string(), &build.simple().to_string()] {
            assert_eq!(normalized_tag(bad), None, "{bad:?}");
        }
    }
}
