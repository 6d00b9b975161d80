//! References to templates, `[namespace/]alias[:tag]` (contract: control-plane, section 4.2).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::Error;

/// The name of a template in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    namespace: Option<String>,
    alias: String,
    tag: Option<String>,
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

    /// The tag; `default` when the reference names none.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(Self::DEFAULT_TAG)
    }

    /// Whether the reference names a tag.
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
        let is_tag = |tag: &str| is_made_of(tag, "-_.") && Uuid::parse_str(tag).is_err();
        if !namespace.is_none_or(|n| is_made_of(n, "-_"))
            || !is_made_of(alias, "-_")
            || !tag.is_none_or(is_tag)
        {
            return Err(invalid());
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            alias: alias.to_owned(),
            tag: tag.map(str::to_owned),
        })
    }
}

fn is_made_of(text: &str, more: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c);
    !text.is_empty() && text.len() <= 128 && text.chars().all(allowed)
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
        let uuid_tag = format!("a:{}", Uuid::nil());
        for bad in
            ["", "/", "a/", "/a", "a:", "a b", "a/b/c", "a:b:c", "ä", "../a", &uuid_tag, &"a".repeat(129)]
        {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?}");
        }
    }
}
