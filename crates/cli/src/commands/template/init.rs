//! `sandcove template init`: the files of a new template.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::project::checked_name;
use crate::output::{note, out};

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// directory of the template, created if it is missing
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// name of the template [default: that of the directory]
    #[arg(short, long)]
    name: Option<String>,
}

const DOCKERFILE: &str =
    "# Any image of a registry. ARG and ENV, multi-stage builds and heredocs work as with `docker build`.
FROM debian:stable-slim

RUN apt-get update \\
 && apt-get install -y --no-install-recommends ca-certificates curl git \\
 && rm -rf /var/lib/apt/lists/*

# Files of this directory; .dockerignore leaves some out.
# COPY . /home/user/

# Commands of sandboxes run as this user, in this directory.
USER user
WORKDIR /home/user

# Runs once in every new sandbox, before you get it.
# CMD [\"python3\", \"-m\", \"http.server\", \"8000\"]
";

const DOCKERIGNORE: &str = ".git
.dockerignore
Dockerfile
e2b.toml
node_modules
";

/// Writes the files; none that exists is overwritten.
pub fn init(args: &InitArgs) -> Result<ExitCode> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("failed to create `{}`", directory.display()))?;
    let name = match &args.name {
        Some(name) => checked_name(name)?,
        None => of_directory(directory)?,
    };
    let files = [
        ("Dockerfile", DOCKERFILE.to_owned()),
        (".dockerignore", DOCKERIGNORE.to_owned()),
        ("e2b.toml", format!("template_name = \"{name}\"\n")),
    ];
    if let Some((existing, _)) = files.iter().find(|(file, _)| directory.join(file).exists()) {
        bail!("`{}` exists already; choose another directory", directory.join(existing).display());
    }
    for (file, text) in files {
        let path = directory.join(file);
        let written = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("failed to write `{}`", path.display()))?;
        out!("{}", path.display());
    }
    note!("build it with `sandcove template build {}`", directory.display());
    Ok(ExitCode::SUCCESS)
}

/// The name of a directory as the name of a template.
fn of_directory(directory: &Path) -> Result<String> {
    let path = std::path::absolute(directory).context("failed to find the current directory")?;
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect();
    checked_name(&name).context("the directory has no name that a template can have; pass --name")
}

#[cfg(test)]
mod tests {
    use sandcove_dockerfile::plan::{Options, Plan};
    use sandcove_dockerfile::source;

    use super::*;

    #[test]
    fn the_files_are_written_once_and_the_dockerfile_can_be_built() {
        let dir = tempfile::tempdir().unwrap();
        let args = InitArgs { directory: dir.path().join("My App"), name: None };
        init(&args).unwrap();
        let toml = std::fs::read_to_string(args.directory.join("e2b.toml")).unwrap();
        assert_eq!(toml, "template_name = \"my-app\"\n");
        assert!(init(&args).unwrap_err().to_string().contains("exists already"));
        let plan = Plan::new(&source::parse(DOCKERFILE).unwrap(), &Options::default()).unwrap();
        assert!(plan.notices.is_empty());
    }
}
