//! `sandcove sandbox cp` and `cat`: files of a sandbox.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use sandcove_client::{Client, Sandbox};
use sandcove_wire::envd::filesystem::FileType;
use sandcove_wire::id::SandboxId;
use tempfile::NamedTempFile;
use tokio::fs::File;

use crate::output::note;
use crate::transfer::Transfer;

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(
    after_help = "One side is a path of this machine, the other ID:PATH. A relative path in the sandbox starts at the home directory; \
                  `-` is standard input or output. Symbolic links in copied directories are left out.",
    override_usage = "sandcove sandbox cp [OPTIONS] <PATH> <ID:PATH>\n       sandcove sandbox cp [OPTIONS] <ID:PATH> <PATH>"
)]
pub struct CopyArgs {
    /// file or directory to copy
    from: Side,
    /// new file, or directory to copy into
    to: Side,
    /// copy a directory with everything in it
    #[arg(short, long)]
    recursive: bool,
    /// user at whose home directory relative paths start, and who owns copies in the sandbox
    #[arg(short, long)]
    user: Option<String>,
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Side {
    /// A path of this machine.
    Here(PathBuf),
    /// A path in a sandbox.
    There(SandboxId, String),
    /// Standard input or output.
    Stream,
}

impl std::str::FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').map(|(id, path)| (id.parse::<SandboxId>(), path)) {
            _ if text == "-" => Ok(Self::Stream),
            Some((Ok(_), "")) => Err(format!("expected a path after `{text}`, such as `{text}/home/user/`")),
            Some((Ok(id), path)) => Ok(Self::There(id, path.to_owned())),
            _ => Ok(Self::Here(text.into())),
        }
    }
}

/// Copies between this machine and a sandbox.
pub async fn copy(client: &Client, args: CopyArgs) -> Result<ExitCode> {
    let user = args.user.as_deref();
    match (args.from, args.to) {
        (Side::Stream, Side::There(id, to)) => {
            let sandbox = client.attach(&id).await?;
            let progress = Transfer::new(&to, None);
            let input = progress.counted(stream(std::io::stdin())?);
            sandbox
                .upload(&to, user, input, None)
                .await
                .with_context(|| format!("failed to write `{to}`"))?;
        }
        (Side::There(id, from), Side::Stream) => {
            let out = &mut stream(std::io::stdout())?;
            let copied = client.attach(&id).await?.download(&from, user, out).await;
            copied.map_err(|error| unread(&from, error))?;
        }
        (Side::Here(from), Side::There(id, to)) => {
            let sandbox = client.attach(&id).await?;
            let to = match to.ends_with('/') {
                true => format!("{to}{}", name_of(&from)?),
                false => to,
            };
            upload(&sandbox, &from, &to, user, args.recursive).await?;
        }
        (Side::There(id, from), Side::Here(to)) => {
            let sandbox = client.attach(&id).await?;
            let name = from.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let to = match to.is_dir() {
                true if !is_plain(name) => {
                    bail!(
                        "`{from}` has no name to give the copy in `{}`\nhint: name the new file too",
                        to.display()
                    )
                }
                true => to.join(name),
                false => to,
            };
            download(&sandbox, &from, &to, user, args.recursive).await?;
        }
        (from, to) => bail!(mismatch(&from, &to)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The error of two sides of which not exactly one is in a sandbox.
fn mismatch(from: &Side, to: &Side) -> String {
    let side = |side: &Side| match side {
        Side::Here(path) => path.display().to_string(),
        Side::There(id, path) => format!("{id}:{path}"),
        Side::Stream => "-".to_owned(),
    };
    let sides = format!("`{}` and `{}`", side(from), side(to));
    let id_of = |side: &Side| match side {
        Side::Here(path) if !path.exists() => {
            path.to_str().and_then(|text| text.split_once(':')).map(|(id, _)| id.to_owned())
        }
        Side::Here(_) | Side::There(..) | Side::Stream => None,
    };
    match (from, to, id_of(from).or_else(|| id_of(to))) {
        (Side::There(..), Side::There(..), _) => format!(
            "{sides} are both in sandboxes\nhint: copy through a pipe: `sandcove sandbox cp {} - | sandcove sandbox cp - {}`",
            side(from),
            side(to)
        ),
        (.., Some(id)) => {
            format!("`{id}` is not the id of a sandbox\nhint: `sandcove sandbox list` shows all")
        }
        _ => format!(
            "{sides} are both on this machine\nhint: one side must be ID:PATH, such as `sandcove sandbox cp {} ID:/home/user/`",
            side(from)
        ),
    }
}

/// The error of a file of a sandbox that cannot be copied.
fn unread(from: &str, error: sandcove_client::Error) -> anyhow::Error {
    let failed = format!("failed to copy `{from}`");
    match error.to_string() {
        text if text.ends_with("is a directory") => {
            anyhow!("{failed}: {text}\nhint: pass --recursive to copy it with everything in it")
        }
        _ => anyhow::Error::from(error).context(failed),
    }
}

/// Standard input or output as a file, which need not have a position.
pub fn stream(standard: impl AsFd) -> Result<File> {
    Ok(File::from_std(standard.as_fd().try_clone_to_owned()?.into()))
}

/// The name that a copy of this file or directory gets.
pub fn name_of(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.with_context(|| format!("`{}` has no name to give the copy\nhint: name the file or directory by a path that ends with its name", path.display()))
}

/// Whether a name is that of an entry in a directory. Names of a sandbox are of strangers.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// Copies a file to a sandbox, or with `recursive` a directory with everything in it.
pub async fn upload(
    sandbox: &Sandbox,
    from: &Path,
    to: &str,
    user: Option<&str>,
    recursive: bool,
) -> Result<()> {
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = waiting.pop() {
        let failed = || format!("failed to read `{}`", from.display());
        if !from.is_dir() {
            let file = File::open(&from).await.with_context(failed)?;
            let metadata = file.metadata().await.with_context(failed)?;
            // The size of a pipe is not known before its end.
            let size = metadata.is_file().then_some(metadata.len());
            let progress = Transfer::new(&from.display().to_string(), size);
            let copied = sandbox.upload(&to, user, progress.counted(file), size).await;
            copied.with_context(|| format!("failed to write `{to}`"))?;
            continue;
        }
        if !recursive {
            bail!(
                "`{}` is a directory\nhint: pass --recursive to copy it with everything in it",
                from.display()
            );
        }
        // A directory without files is not needed by any upload.
        if to.starts_with('/') {
            sandbox.make_directory(&to).await.with_context(|| format!("failed to create `{to}`"))?;
        }
        for entry in from.read_dir().with_context(failed)? {
            let entry = entry.with_context(failed)?;
            if entry.file_type().with_context(failed)?.is_symlink() {
                note!("left out the symbolic link `{}`", entry.path().display());
                continue;
            }
            let name = entry.file_name();
            let name = name.to_str().with_context(|| {
                format!("the name {name:?} is not UTF-8\nhint: rename the file, or leave it out")
            })?;
            waiting.push((entry.path(), format!("{}/{name}", to.trim_end_matches('/'))));
        }
    }
    Ok(())
}

async fn download(
    sandbox: &Sandbox,
    from: &str,
    to: &Path,
    user: Option<&str>,
    recursive: bool,
) -> Result<()> {
    if !recursive {
        return fetch(sandbox, from, to, user).await;
    }
    if !from.starts_with('/') {
        bail!(
            "`{from}` is relative\nhint: name the directory by its absolute path, such as `/home/user/{from}`"
        );
    }
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = waiting.pop() {
        std::fs::create_dir_all(&to).with_context(|| format!("failed to create `{}`", to.display()))?;
        for entry in sandbox.list_directory(&from, 1).await? {
            if !is_plain(&entry.name) {
                bail!("the sandbox names an entry {:?}, which no file has", entry.name);
            }
            let (inner, copy) =
                (format!("{}/{}", from.trim_end_matches('/'), entry.name), to.join(&entry.name));
            match entry.r#type() {
                _ if entry.is_symlink || entry.symlink_target.is_some() => {
                    note!("left out the symbolic link `{inner}`");
                }
                FileType::Directory => waiting.push((inner, copy)),
                FileType::File => fetch(sandbox, &inner, &copy, user).await?,
                _ => note!("left out `{inner}`, which is neither file nor directory"),
            }
        }
    }
    Ok(())
}

/// Copies one file. Until all of it is there, an old file of that name stays.
async fn fetch(sandbox: &Sandbox, from: &str, to: &Path, user: Option<&str>) -> Result<()> {
    let failed = || format!("failed to write `{}`", to.display());
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = NamedTempFile::new_in(directory).with_context(failed)?;
    let mut file = File::from_std(new.reopen().with_context(failed)?);
    // A relative path starts at the home directory of the user, which `stat` does not know.
    let size = match Transfer::is_wanted() && (user.is_none() || from.starts_with('/')) {
        true => sandbox.stat(from).await.ok().flatten().and_then(|entry| u64::try_from(entry.size).ok()),
        false => None,
    };
    let progress = Transfer::new(from, size);
    let copied = sandbox.download(from, user, &mut progress.counted(&mut file)).await;
    copied.map_err(|error| unread(from, error))?;
    // As any new file, and not for its owner alone as temporary ones.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666 & !umask());
    new.as_file().set_permissions(mode).with_context(failed)?;
    new.persist(to).map(drop).with_context(failed)
}

/// The bits that new files do not get.
fn umask() -> u32 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = text.lines().find_map(|line| line.strip_prefix("Umask:"));
    bits.and_then(|bits| u32::from_str_radix(bits.trim(), 8).ok()).unwrap_or(0o077)
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// id of the sandbox
    id: SandboxId,
    /// files to print, one after the other
    #[arg(required = true)]
    paths: Vec<String>,
    /// user at whose home directory relative paths start
    #[arg(short, long)]
    user: Option<String>,
}

/// Prints files of a sandbox.
pub async fn cat(client: &Client, args: CatArgs) -> Result<ExitCode> {
    let sandbox = client.attach(&args.id).await?;
    for path in &args.paths {
        let copied = sandbox.download(path, args.user.as_deref(), &mut stream(std::io::stdout())?).await;
        match copied {
            // The reader has gone.
            Err(sandcove_client::Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                break;
            }
            copied => copied.with_context(|| format!("failed to print `{path}`"))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_path_here_or_behind_the_id_of_a_sandbox() {
        let id: SandboxId = "i0123456789abcdefgh0".parse().unwrap();
        assert_eq!("i0123456789abcdefgh0:/a:b".parse(), Ok(Side::There(id, "/a:b".to_owned())));
        assert_eq!("./i0123456789abcdefgh0:a".parse(), Ok(Side::Here("./i0123456789abcdefgh0:a".into())));
        assert_eq!("-".parse(), Ok(Side::Stream));
        assert!("i0123456789abcdefgh0:".parse::<Side>().unwrap_err().contains("a path"));
    }

    #[test]
    fn names_of_a_sandbox_lead_nowhere_else() {
        assert!(is_plain("a") && is_plain("..."));
        for name in ["", ".", "..", "a/b", "/", "../a"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
