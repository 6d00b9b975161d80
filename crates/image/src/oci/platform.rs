//! The platform of this machine, and the choice of an image for it.

use std::fmt;

use super::manifest::{Descriptor, PlatformOf};

/// An operating system and an architecture, with the names that images use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    architecture: &'static str,
}

impl Platform {
    /// The platform of this machine, which is that of its sandboxes.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture }
    }

    /// The architecture, as images name it.
    pub(crate) fn architecture(self) -> &'static str {
        self.architecture
    }

    /// Whether an image for `other` runs here. An arm64 image may name its variant, which is always v8.
    pub(crate) fn runs(self, other: &PlatformOf) -> bool {
        let variant = other.variant.as_deref().unwrap_or_default();
        other.os == "linux"
            && other.architecture == self.architecture
            && match self.architecture {
                // Higher levels need instructions that this machine may lack.
                "amd64" => matches!(variant, "" | "v1"),
                _ => matches!(variant, "" | "v8"),
            }
    }

    /// Chooses from an index: the first manifest for this platform, or else the only one whose platform is not given.
    ///
    /// # Errors
    /// The platforms of the index.
    pub(crate) fn choose(self, manifests: &[Descriptor]) -> Result<&Descriptor, String> {
        let fits = |entry: &&Descriptor| entry.platform.as_ref().is_some_and(|platform| self.runs(platform));
        if let Some(found) = manifests.iter().find(fits) {
            return Ok(found);
        }
        if let [only] = manifests
            && only.platform.is_none()
        {
            return Ok(only);
        }
        // Attestations are listed with an unknown platform.
        let mut names: Vec<String> = manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref())
            .filter(|platform| platform.os != "unknown")
            .map(PlatformOf::to_string)
            .collect();
        names.dedup();
        names.truncate(20);
        Err(if names.is_empty() { "no platform".to_owned() } else { names.join(", ") })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture)
    }
}

impl fmt::Display for PlatformOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |text: &str| -> String {
            text.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(32).collect()
        };
        let or_unknown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
        write!(f, "{}/{}", or_unknown(part(&self.os)), or_unknown(part(&self.architecture)))?;
        match &self.variant {
            Some(variant) if !variant.is_empty() => write!(f, "/{}", part(variant)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::digest::Digest;

    fn entry(platform: Option<(&str, &str, Option<&str>)>) -> Descriptor {
        let platform = platform.map(|(os, architecture, variant)| PlatformOf {
            os: os.into(),
            architecture: architecture.into(),
            variant: variant.map(Into::into),
        });
        let name = format!("{platform:?}");
        Descriptor { media_type: String::new(), digest: Digest::of(name.as_bytes()), size: 1, platform }
    }

    #[test]
    fn the_manifest_for_the_platform_is_chosen() {
        let amd64 = Platform { architecture: "amd64" };
        let arm64 = Platform { architecture: "arm64" };
        let list = [
            entry(Some(("windows", "amd64", None))),
            entry(Some(("linux", "amd64", Some("v3")))),
            entry(Some(("linux", "arm64", Some("v8")))),
            entry(Some(("linux", "amd64", None))),
            entry(Some(("unknown", "unknown", None))),
        ];
        assert_eq!(amd64.choose(&list).unwrap().digest, list[3].digest);
        assert_eq!(arm64.choose(&list).unwrap().digest, list[2].digest);
        let only = [entry(None)];
        assert_eq!(amd64.choose(&only).unwrap().digest, only[0].digest);
        assert_eq!(amd64.choose(&list[2..3]).unwrap_err(), "linux/arm64/v8");
        assert_eq!(amd64.choose(&list[4..]).unwrap_err(), "no platform");
        assert_eq!(amd64.choose(&[]).unwrap_err(), "no platform");
    }
}
