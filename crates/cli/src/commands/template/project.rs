//! The files that describe a template in a directory: its Dockerfile, and the `e2b.toml` of older E2B projects (contract: cli, section
//! 2.3).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Names of a Dockerfile, the first one that exists is used.
const DOCKERFILES: [&str; 2] = ["e2b.Dockerfile", "Dockerfile"];

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 128;

/// Defaults of `e2b.toml`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Project {
    /// Name of the template.
    #[serde(alias = "name")]
    pub template_name: Option<String>,
    /// Dockerfile, relative to the directory.
    pub dockerfile: Option<PathBuf>,
    /// Start command.
    pub start_cmd: Option<String>,
    /// Ready command.
    pub ready_cmd: Option<String>,
    /// Number of CPUs.
    pub cpu_count: Option<i64>,
    /// Memory, in MiB.
    pub memory_mb: Option<i64>,
}

impl Project {
    /// Reads `e2b.toml` of a directory; the default if there is none.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("e2b.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("failed to read `{}`", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
        }
    }

    /// The Dockerfile of a directory.
    pub fn dockerfile(&self, directory: &Path, given: Option<&Path>) -> Result<PathBuf> {
        if let Some(given) = given {
            // As with `docker build`, the path starts here, not at the directory.
            let beside = directory.join(given);
            return Ok(if !given.exists() && beside.exists() { beside } else { given.to_owned() });
        }
        if let Some(named) = &self.dockerfile {
            return Ok(directory.join(named));
        }
        let found = DOCKERFILES.iter().map(|name| directory.join(name)).find(|path| path.exists());
        found.with_context(|| {
            format!(
                "no Dockerfile in `{}`\nhint: pass --file, or write one with `sandcove template init`",
                directory.display()
            )
        })
    }
}

/// Checks a name `[namespace/]alias[:tag]`, as the server does (contract: templates, section 4).
pub fn checked_name(name: &str) -> Result<String> {
    let name = name.trim().to_lowercase();
    let (path, tag) = match name.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (name.as_str(), None),
    };
    let word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
    };
    let is_path = path.split('/').count() <= 2 && path.split('/').all(word);
    let is_tag =
        tag.is_none_or(|tag| !tag.is_empty() && tag.split('.').all(|part| part.is_empty() || word(part)));
    if !is_path || !is_tag || name.chars().count() > MAX_NAME {
        bail!(
            "invalid name `{name}` of a template\nhint: use lowercase letters, digits, `-` and `_`, and at most {MAX_NAME} \
             characters; a tag may follow after `:`"
        );
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_anything_is_sent() {
        for (given, expected) in [("My-App", "my-app"), (" a_1 ", "a_1"), ("team/app:v1.2", "team/app:v1.2")]
        {
            assert_eq!(checked_name(given).unwrap(), expected);
        }
        for bad in ["", "a b", "a/b/c", "a:", "a:b:c", "ä", "a.b", &"x".repeat(129)] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_dockerfile_of_e2b_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::read(dir.path()).unwrap();
        assert!(project.dockerfile(dir.path(), None).unwrap_err().to_string().contains("template init"));
        std::fs::write(dir.path().join("Dockerfile"), "").unwrap();
        assert!(project.dockerfile(dir.path(), None).unwrap().ends_with("Dockerfile"));
        std::fs::write(dir.path().join("e2b.Dockerfile"), "").unwrap();
        assert!(project.dockerfile(dir.path(), None).unwrap().ends_with("e2b.Dockerfile"));
        let given = project.dockerfile(dir.path(), Some(Path::new("Dockerfile"))).unwrap();
        assert_eq!(given, dir.path().join("Dockerfile"), "a name beside the context is found too");
    }

    #[test]
    fn an_old_project_file_gives_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "template_id = \"abc\"\nname = \"app\"\nstart_cmd = \"run\"\ncpu_count = 2\nteam_id = \"x\"\n";
        std::fs::write(dir.path().join("e2b.toml"), text).unwrap();
        let project = Project::read(dir.path()).unwrap();
        assert_eq!((project.template_name.as_deref(), project.cpu_count), (Some("app"), Some(2)));
        std::fs::write(dir.path().join("e2b.toml"), "cpu_count = \"x\"").unwrap();
        assert!(Project::read(dir.path()).is_err());
    }
}
