//! Manifests, indexes and configurations, in the formats of OCI and Docker: what an import reads of them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::digest::Digest;

/// Media types that are asked for.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";
/// Maximum size of a manifest or index, bytes, as in the distribution specification.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
/// Maximum size of a configuration, bytes.
pub(crate) const MAX_CONFIG: u64 = 8 << 20;
/// Maximum number of layers; Docker builds no more than 127.
pub(crate) const MAX_LAYERS: usize = 512;

/// Reference to a blob or manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    pub platform: Option<PlatformOf>,
}

/// Platform that an index names.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct PlatformOf {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    pub variant: Option<String>,
}

/// A manifest or an index.
#[derive(Debug)]
pub(crate) enum Document {
    Manifest { config: Descriptor, layers: Vec<Descriptor> },
    Index(Vec<Descriptor>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    #[serde(default)]
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// Reason why a document of an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("its manifest cannot be read: {0}")]
    Manifest(serde_json::Error),
    #[error("its configuration cannot be read: {0}")]
    Config(serde_json::Error),
    #[error(
        "its manifest has the format of Docker before 1.10 (schema 1); push it again with a current client"
    )]
    Schema1,
    #[error("it has {0} layers; {max} are supported", max = MAX_LAYERS)]
    TooManyLayers(usize),
    #[error("a layer has the media type '{0}', which is not supported")]
    MediaType(String),
    #[error("its manifest is neither a manifest nor an index")]
    Neither,
    #[error("{what} has {found} bytes instead of {expected}")]
    Size { what: String, found: usize, expected: u64 },
    #[error("{what} has the digest {found} instead of {expected}")]
    Digest { what: String, found: Digest, expected: Digest },
}

impl Document {
    /// Parses a manifest or index. A document that could be either is refused, since others may read it differently.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let fields: Fields = serde_json::from_slice(bytes).map_err(DocumentError::Manifest)?;
        match fields {
            Fields { schema_version: 1, .. } => Err(DocumentError::Schema1),
            Fields { manifests: Some(manifests), config: None, layers: None, .. } => {
                Ok(Self::Index(manifests))
            }
            Fields { manifests: None, config: Some(config), layers: Some(layers), .. } => {
                if layers.len() > MAX_LAYERS {
                    return Err(DocumentError::TooManyLayers(layers.len()));
                }
                for layer in &layers {
                    check_media_type(&layer.media_type)?;
                }
                Ok(Self::Manifest { config, layers })
            }
            _ => Err(DocumentError::Neither),
        }
    }
}

/// Accepts tar layers, whatever compresses them: the first bytes of a layer say that. Others are encrypted or are no files.
fn check_media_type(media_type: &str) -> Result<(), DocumentError> {
    let known = ["application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."];
    let is_known = media_type.is_empty()
        || (known.iter().any(|prefix| media_type.starts_with(prefix)) && !media_type.ends_with("+encrypted"));
    if is_known { Ok(()) } else { Err(DocumentError::MediaType(media_type.to_owned())) }
}

/// The configuration of an image.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    pub variant: Option<String>,
    config: Option<Settings>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct Settings {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
    #[serde(rename = "User")]
    user: Option<String>,
    #[serde(rename = "WorkingDir")]
    workdir: Option<String>,
    #[serde(rename = "Labels")]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Option<Vec<Digest>>,
}

impl Config {
    /// Parses a configuration.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        serde_json::from_slice(bytes).map_err(DocumentError::Config)
    }

    /// Digests of the uncompressed layers, from the bottom.
    pub(crate) fn diff_ids(&self) -> &[Digest] {
        self.rootfs.diff_ids.as_deref().unwrap_or_default()
    }

    /// The platform that the image is for.
    pub(crate) fn platform(&self) -> PlatformOf {
        PlatformOf {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }

    /// The user, if one is named.
    pub(crate) fn user(&self) -> Option<String> {
        self.config.as_ref()?.user.clone().filter(|user| !user.is_empty())
    }

    /// The working directory, if one is named.
    pub(crate) fn workdir(&self) -> Option<String> {
        self.config.as_ref()?.workdir.clone().filter(|path| !path.is_empty())
    }

    /// The labels.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.config.as_ref().and_then(|config| config.labels.clone()).unwrap_or_default()
    }

    /// Environment variables; those with an empty value are left out (contract 9.1).
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let env = self.config.as_ref().and_then(|config| config.env.as_deref()).unwrap_or_default();
        let pairs = env.iter().filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(name, value)| !name.is_empty() && !value.is_empty() && !pair_has_nul(name, value))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}

fn pair_has_nul(name: &str, value: &str) -> bool {
    name.contains('\0') || value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(media_type: &str) -> String {
        format!(r#"{{"mediaType":"{media_type}","digest":"{}","size":3}}"#, Digest::of(b"x"))
    }

    #[test]
    fn manifests_and_indexes_are_told_apart_by_their_fields() {
        let layer = descriptor("application/vnd.oci.image.layer.v1.tar+zstd");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{},"layers":[{layer}]}}"#, descriptor("c"));
        assert!(
            matches!(Document::parse(manifest.as_bytes()), Ok(Document::Manifest { layers, .. }) if layers.len() == 1)
        );
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{layer}]}}"#);
        assert!(matches!(Document::parse(index.as_bytes()), Ok(Document::Index(list)) if list.len() == 1));
        let both = format!(r#"{{"schemaVersion":2,"config":{layer},"layers":[],"manifests":[]}}"#);
        for (text, part) in [
            (both.as_str(), "neither"),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#, "schema 1"),
            ("[]", "cannot be read"),
            (r#"{"schemaVersion":2}"#, "neither"),
        ] {
            let error = Document::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn layers_that_are_no_files_are_refused() {
        for media_type in
            ["application/vnd.in-toto+json", "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"]
        {
            let layer = descriptor(media_type);
            let manifest = format!(r#"{{"config":{layer},"layers":[{layer}]}}"#);
            assert!(Document::parse(manifest.as_bytes()).unwrap_err().to_string().contains(media_type));
        }
    }

    #[test]
    fn variables_without_a_value_are_dropped() {
        let text = r#"{"os":"linux","architecture":"amd64","rootfs":{"diff_ids":null},
            "config":{"Env":["PATH=/bin:/usr/bin","EMPTY=","NOTHING","A=b=c","=x"]}}"#;
        let env = Config::parse(text.as_bytes()).unwrap().env();
        assert_eq!(
            env,
            [("PATH".into(), "/bin:/usr/bin".into()), ("A".into(), "b=c".into())] as [(String, String); 2]
        );
        let none = r#"{"rootfs":{"diff_ids":[]},"config":null}"#;
        assert!(Config::parse(none.as_bytes()).unwrap().env().is_empty());
    }
}
