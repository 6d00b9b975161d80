//! The templates that are shipped as Dockerfiles and built when a user asks for them: `sandcove template build --builtin NAME`.

use std::path::Path;

use anyhow::{Context, Result};
use clap::builder::PossibleValue;
use tempfile::TempDir;

/// A shipped template: its name, and the files of its directory.
struct Shipped {
    name: &'static str,
    about: &'static str,
    files: &'static [(&'static str, &'static str)],
}

macro_rules! shipped {
    ($name:literal, $about:literal, [$($file:literal),+]) => {
        Shipped {
            name: $name,
            about: $about,
            files: &[$(($file, include_str!(concat!("../../../templates/", $name, "/", $file)))),+],
        }
    };
}

/// Every shipped template.
const SHIPPED: [Shipped; 2] = [
    shipped!("desktop", "Xfce with Firefox and noVNC, for `e2b-desktop`", ["Dockerfile", "e2b.toml"]),
    shipped!(
        "mcp-gateway",
        "MCP servers, for `Sandbox.create(mcp=...)`",
        ["Dockerfile", "e2b.toml", "requirements.txt", "mcp_gateway.py", "servers.json"]
    ),
];

/// A shipped template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin(usize);

impl clap::ValueEnum for Builtin {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Builtin; SHIPPED.len()] = [Builtin(0), Builtin(1)];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        SHIPPED.get(self.0).map(|shipped| PossibleValue::new(shipped.name).help(shipped.about))
    }
}

impl Builtin {
    /// Writes the files of the template to a temporary directory.
    pub fn write(self) -> Result<TempDir> {
        let directory = tempfile::tempdir().context("failed to create a temporary directory")?;
        write(self.0, directory.path())?;
        Ok(directory)
    }
}

fn write(index: usize, directory: &Path) -> Result<()> {
    for (name, text) in SHIPPED[index].files {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sandcove_dockerfile::plan::{Options, Plan};
    use sandcove_dockerfile::source;
    use sandcove_server::domain::template::ON_REQUEST;

    use super::*;
    use crate::commands::template::project::Project;

    #[test]
    fn the_server_knows_which_templates_can_be_built() {
        assert_eq!(SHIPPED.map(|shipped| shipped.name), ON_REQUEST);
        assert_eq!(<Builtin as clap::ValueEnum>::value_variants().len(), SHIPPED.len());
    }

    #[test]
    fn shipped_templates_are_what_users_write() {
        for (index, shipped) in SHIPPED.iter().enumerate() {
            let directory = Builtin(index).write().unwrap();
            let project = Project::read(directory.path()).unwrap();
            assert_eq!(project.template_name.as_deref(), Some(shipped.name));
            let text = std::fs::read_to_string(project.dockerfile(directory.path(), None).unwrap()).unwrap();
            let plan = Plan::new(&source::parse(&text).unwrap(), &Options::default()).unwrap();
            assert!(plan.notices.is_empty(), "{}: {:?}", shipped.name, plan.notices);
        }
    }
}
