//! Recipes of layers, and the layer ids derived from them.

use std::fmt;

use sha2::{Digest, Sha256};

/// Version of the build process. Raise it when the process changes, so that layers built the old way are not reused.
const FORMAT: u32 = 1;

/// Id of a layer: `<recipe name>-<first 16 hex digits of the recipe's SHA-256>`, or `oci-<first 32 hex digits of the digest of
/// the image's configuration>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(String);

impl LayerId {
    /// Id of the layer of an image whose configuration has this SHA-256.
    pub(crate) fn of_image(configuration: &[u8; 32]) -> Self {
        let hex: String = configuration.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self(format!("oci-{hex}"))
    }

    /// Name of the layer's directory.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Origin of a layer's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A fresh Debian system.
    Debian {
        /// Code name of the release.
        suite: &'static str,
        /// Packages to install beside the essential ones.
        packages: Vec<String>,
    },
    /// The layer below it in its template.
    LayerBelow,
}

/// A file that a recipe writes before its script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Path relative to the root.
    pub path: String,
    /// Permission bits; the owner is root.
    pub mode: u32,
    /// Contents of the file.
    pub contents: String,
}

/// Instructions for building a layer: an origin, files, then a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Short name of `[a-z0-9-]`; layer ids begin with it.
    pub name: &'static str,
    /// Origin of the files.
    pub origin: Origin,
    /// Files to write.
    pub files: Vec<File>,
    /// Bash script that runs as root inside.
    pub script: &'static str,
    /// Peak disk space of the build, MiB; not part of the layer's identity.
    pub size_mib: u64,
}

/// A recipe with its id, which depends on the recipe and on the layers below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Id in the store.
    pub id: LayerId,
    /// Recipe of the layer.
    pub recipe: Recipe,
}

impl Layer {
    /// Creates the layer of `recipe` on top of `below`.
    pub fn new(recipe: Recipe, below: Option<&LayerId>) -> Self {
        let mut digest = Sha256::new();
        // Each part is preceded by its length, so that no two recipes give the same bytes.
        let mut part = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        part(&FORMAT.to_string());
        part(std::env::consts::ARCH);
        part(below.map_or("", LayerId::as_str));
        match &recipe.origin {
            Origin::Debian { suite, packages } => {
                part(suite);
                part(&packages.join(" "));
            }
            Origin::LayerBelow => part("layer"),
        }
        for file in &recipe.files {
            part(&file.path);
            part(&format!("{:o}", file.mode));
            part(&file.contents);
        }
        part(recipe.script);
        let hex: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { id: LayerId(format!("{}-{hex}", recipe.name)), recipe }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            name: "base",
            origin: Origin::Debian { suite: "trixie", packages: vec!["bash".into()] },
            files: vec![File { path: "etc/x".into(), mode: 0o644, contents: "x".into() }],
            script: "true",
            size_mib: 0,
        }
    }

    #[test]
    fn the_same_recipe_has_the_same_name() {
        assert_eq!(Layer::new(recipe(), None).id, Layer::new(recipe(), None).id);
        assert!(Layer::new(recipe(), None).id.as_str().starts_with("base-"));
    }

    #[test]
    fn a_change_anywhere_is_another_layer() {
        let original = Layer::new(recipe(), None).id;
        let changes: [fn(&mut Recipe); 6] = [
            |r| r.origin = Origin::LayerBelow,
            |r| r.origin = Origin::Debian { suite: "trixie", packages: vec!["bash".into(), "jq".into()] },
            |r| r.files[0].path = "etc/y".into(),
            |r| r.files[0].mode = 0o755,
            |r| r.files[0].contents = "y".into(),
            |r| r.script = "false",
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut changed = recipe();
            change(&mut changed);
            assert_ne!(Layer::new(changed, None).id, original, "change {index}");
        }
        assert_ne!(Layer::new(recipe(), Some(&original)).id, original);
    }
}
