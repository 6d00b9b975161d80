//! References of images: `[registry/]repository[:tag][@digest]`, with the defaults of Docker.

use std::fmt;

use super::digest::Digest;
use super::error::{Error, Result};

/// Registry of references that name none.
const DOCKER_HUB: &str = "docker.io";
/// Maximum length, bytes.
const MAX_LENGTH: usize = 512;
const MAX_TAG: usize = 128;

/// A parsed reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host of the registry, with its port if one is given. `docker.io` for Docker Hub.
    pub registry: String,
    /// Name of the repository, such as `library/debian`.
    pub repository: String,
    /// Tag; unused if there is a digest.
    pub tag: String,
    /// Digest of the manifest or index.
    pub digest: Option<Digest>,
}

impl Reference {
    /// Parses `text`.
    ///
    /// # Errors
    /// [`Error::Reference`] with the reason.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let invalid = |reason| Error::Reference { reference: shortened(text), reason };
        if text.is_empty() || text.len() > MAX_LENGTH {
            return Err(invalid("it has to have 1 to 512 bytes"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = digest
                    .parse()
                    .map_err(|_| invalid("the digest has to be `sha256:` and 64 hex digits"))?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        let (registry, path) = match rest.split_once('/') {
            Some((first, path)) if first == "localhost" || first.contains(['.', ':']) => (first, path),
            _ => (DOCKER_HUB, rest),
        };
        // A colon after the last slash begins a tag.
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, tag),
            _ => (path, "latest"),
        };
        if !is_registry(registry) {
            return Err(invalid("the registry has to be a host name or address, with a port if necessary"));
        }
        if !repository.split('/').all(is_component) {
            return Err(invalid("the repository has to be lowercase letters, digits and single separators"));
        }
        if !is_tag(tag) {
            return Err(invalid("the tag has to be up to 128 letters, digits, `_`, `.` and `-`"));
        }
        let registry = if registry == "index.docker.io" { DOCKER_HUB } else { registry };
        let repository = if registry == DOCKER_HUB && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        Ok(Self { registry: registry.to_owned(), repository, tag: tag.to_owned(), digest })
    }

    /// Host of the registry's API, with its port if one is given.
    pub(crate) fn host(&self) -> &str {
        if self.registry == DOCKER_HUB { "registry-1.docker.io" } else { &self.registry }
    }

    /// The last part of the path of its manifest.
    pub(crate) fn version(&self) -> String {
        self.digest.as_ref().map_or_else(|| self.tag.clone(), Digest::to_string)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => write!(f, ":{}", self.tag),
        }
    }
}

/// The beginning of a text of any length, for an error.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else { return false };
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (None, port.strip_prefix(':').or(if port.is_empty() { None } else { Some("") }))
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), None),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.is_none_or(|host| host.split('.').all(is_label))
        && port
            .is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok())
}

/// Lowercase letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|byte| byte.is_some_and(|byte| is_word(*byte)))
        && component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_completed() {
        let hex = "0123456789abcdef".repeat(4);
        for (text, full) in [
            ("debian", "docker.io/library/debian:latest".to_owned()),
            ("debian:stable", "docker.io/library/debian:stable".into()),
            ("oven/bun", "docker.io/oven/bun:latest".into()),
            ("index.docker.io/a/b", "docker.io/a/b:latest".into()),
            ("ghcr.io/a/b/c:v1.0", "ghcr.io/a/b/c:v1.0".into()),
            ("localhost/x", "localhost/x:latest".into()),
            ("localhost:5000/x__y/a--b", "localhost:5000/x__y/a--b:latest".into()),
            ("127.0.0.1:5000/x:1", "127.0.0.1:5000/x:1".into()),
            ("[::1]:5000/x:1", "[::1]:5000/x:1".into()),
            (&format!("debian:stable@sha256:{hex}"), format!("docker.io/library/debian@sha256:{hex}")),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), full);
        }
        assert_eq!(Reference::parse("debian").unwrap().host(), "registry-1.docker.io");
    }

    #[test]
    fn references_that_are_not_valid_are_refused() {
        let long = "a".repeat(513);
        for text in [
            "",
            "Debian",
            "a//b",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a:",
            "a:-b",
            "a:b c",
            "a@sha256:12",
            "a@md5:0123",
            "../../etc/passwd",
            "host.example:port/a",
            "host.example:70000/a",
            "user:pass@host.example/a",
            "https://host.example/a",
            "host.example/a?b",
            "host.example/",
            "[::1/a",
            "[::1]x/a",
            "é/a",
            &long,
        ] {
            let error = Reference::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("invalid image reference"), "{text}: {error}");
        }
    }
}
