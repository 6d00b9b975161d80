//! What a layer is made from, and the name that follows from it.

use std::fmt;

use sha2::{Digest, Sha256};

/// Raised when the way recipes are carried out changes, so that layers built the old way are not taken for new ones.
const FORMAT: u32 = 1;

/// A stored layer: `<recipe name>-<first 16 hex digits of the recipe's SHA-256>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(String);

impl LayerId {
    /// The directory name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a layer starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A fresh Debian system.
    Debian {
        /// The release's code name.
        suite: &'static str,
        /// Packages beside the essential ones.
        packages: Vec<String>,
    },
    /// The layer below it in its template.
    LayerBelow,
}

/// A file a recipe puts in place before its script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where, relative to the root.
    pub path: String,
    /// Permission bits; the owner is root.
    pub mode: u32,
    /// What it holds.
    pub contents: String,
}

/// How a layer is made: an origin, files, then a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Short name of `[a-z0-9-]`; also the name of the tarball in a cache.
    pub name: &'static str,
    /// What it starts from.
    pub origin: Origin,
    /// Files put in place.
    pub files: Vec<File>,
    /// A bash script that runs as root inside.
    pub script: &'static str,
    /// Disk space that making the layer takes at its peak, MiB; not part of its identity.
    pub size_mib: u64,
}

/// A recipe with its place in a template: everything below it is part of its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its name in the store.
    pub id: LayerId,
    /// How to make it.
    pub recipe: Recipe,
}

impl Layer {
    /// Names `recipe` on top of `below`.
    pub fn new(recipe: Recipe, below: Option<&LayerId>) -> Self {
        let mut digest = Sha256::new();
        // Each part carries its length, so that no two recipes can run together into the same bytes.
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
