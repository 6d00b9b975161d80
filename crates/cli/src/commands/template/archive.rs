//! Templates as archives, and the deletion of what no template needs.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use sandcove_client::{BuildEnd, Client, Error as ClientError};
use sandcove_wire::api::build::{
    ArchiveSource, Garbage, GarbageItem, NewTemplate, RequestedBuild, StartBuild,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWrite};

use super::build::size_of;
use super::printer::{Failure, Printer};
use super::project::checked_name;
use super::{continues, interruptible};
use crate::commands::candidates;
use crate::commands::count;
use crate::output::{self, note, out};
use crate::signals::BROKEN_PIPE;
use crate::table::table;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// name or id of the template, with a tag if wanted
    #[arg(add = candidates::templates())]
    template: String,
    /// file to write: an archive of an OCI layout; `-` stands for standard output
    file: PathBuf,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// archive of `template export`, of an OCI layout or of `docker save`; it may be compressed
    file: PathBuf,
    /// name of the template
    #[arg(short, long)]
    name: String,
    /// name, tag or digest of the image, if the archive has several
    #[arg(long)]
    image: Option<String>,
    /// start command: runs once in every new sandbox [default: that of the exported template]
    #[arg(short, long, value_name = "COMMAND")]
    cmd: Option<String>,
    /// command that succeeds when a new sandbox is ready [default: that of the exported template]
    #[arg(long, value_name = "COMMAND")]
    ready: Option<String>,
    /// number of CPUs of sandboxes: 1 or an even number [default: 2]
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<i64>,
    /// memory of sandboxes in MiB, an even number [default: 1024]
    #[arg(long, value_name = "MIB")]
    memory: Option<i64>,
    /// tag of the build beside that of the name; repeatable [default: default]
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// print a JSON object for each event on standard output
    #[arg(long)]
    json: bool,
}

/// Arguments of `gc`.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// delete nothing, and show what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Writes a template to a file, which is there as a whole or not at all.
pub async fn export(client: &Client, args: ExportArgs) -> Result<ExitCode> {
    let is_file = args.file.as_os_str() != "-";
    let outcome = match is_file {
        true => format!("`{}` was not written", args.file.display()),
        false => "the archive on standard output is incomplete".to_owned(),
    };
    let written = async {
        match is_file {
            true => to_file(client, &args).await,
            false => to_stdout(client, &args.template).await,
        }
    };
    interruptible(written, || outcome).await
}

async fn to_stdout(client: &Client, template: &str) -> Result<ExitCode> {
    let out = std::io::stdout().as_fd().try_clone_to_owned().context("failed to write to standard output")?;
    match receive(client, template, &mut File::from_std(out.into())).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ClientError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(BROKEN_PIPE.into()),
        Err(error) => Err(error.into()),
    }
}

async fn to_file(client: &Client, args: &ExportArgs) -> Result<ExitCode> {
    let shown = args.file.display();
    let mut name = args.file.file_name().with_context(|| format!("`{shown}` is not a file\nhint: name one, such as `template.tar.zst`, or `-` for standard output"))?.to_owned();
    name.push(".part");
    let unfinished = Unfinished(args.file.with_file_name(name));
    let failed = || format!("failed to write `{}`", unfinished.0.display());
    let mut file = File::create(&unfinished.0).await.with_context(failed)?;
    receive(client, &args.template, &mut file).await?;
    file.sync_all().await.with_context(failed)?;
    let bytes = file.metadata().await.with_context(failed)?.len();
    tokio::fs::rename(&unfinished.0, &args.file)
        .await
        .with_context(|| format!("failed to write `{shown}`"))?;
    note!("wrote {shown} ({})", size_of(bytes));
    Ok(ExitCode::SUCCESS)
}

/// Copies the archive of a template to `out`, and says what takes time.
async fn receive(
    client: &Client,
    template: &str,
    out: &mut (impl AsyncWrite + Unpin),
) -> Result<(), ClientError> {
    let mut is_receiving = false;
    let progress = |bytes| match bytes {
        0 => note!("the server reads the files of {template} for their digest"),
        _ if !is_receiving => {
            is_receiving = true;
            note!("receiving the archive");
        }
        _ => {}
    };
    client.export_template(template, out, progress).await
}

/// A file that is deleted unless it is renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes a template of an archive.
pub async fn import(client: &Client, args: ImportArgs) -> Result<ExitCode> {
    let started = OnceCell::new();
    let outcome = || match started.get() {
        Some(build) => continues(build),
        None => "nothing was imported".to_owned(),
    };
    interruptible(upload_and_build(client, args, &started), outcome).await
}

async fn upload_and_build(
    client: &Client,
    args: ImportArgs,
    started: &OnceCell<RequestedBuild>,
) -> Result<ExitCode> {
    let printer = Printer::new(args.json);
    let (file, hash) = hashed(&args.file).await?;
    let new = NewTemplate {
        name: Some(checked_name(&args.name)?),
        tags: Some(args.tags).filter(|tags| !tags.is_empty()),
        cpu_count: args.cpu,
        memory_mb: args.memory,
        ..NewTemplate::default()
    };
    let build = client.request_build(&new).await?;
    let link = client.upload_link(&build.template_id, &hash).await?;
    if link.present {
        printer.local("the archive is already on the server");
    } else {
        let size = file.metadata().await?.len();
        printer.local(&format!("uploading {} ({})", args.file.display(), size_of(size)));
        client.upload(&link, file).await.context("failed to upload the archive")?;
    }
    let start = StartBuild {
        from_archive: Some(ArchiveSource { files_hash: hash, image: args.image }),
        start_cmd: args.cmd,
        ready_cmd: args.ready,
        ..StartBuild::default()
    };
    client.start_build(&build.template_id, &build.build_id, &start).await?;
    let build = started.get_or_init(|| build);
    let follow = |entry: &_| printer.entry(entry, &Default::default());
    match client.follow_build(&build.template_id, &build.build_id, follow).await? {
        BuildEnd::Ready => {
            printer.ready(build);
            Ok(ExitCode::SUCCESS)
        }
        BuildEnd::Failed(reason) => {
            let failure = Failure { message: &reason.message, step: reason.step.as_deref(), place: None };
            printer.failed(build, &failure);
            bail!("the import failed: {}", reason.message);
        }
    }
}

/// Opens a file, and computes its digest.
async fn hashed(path: &Path) -> Result<(File, String)> {
    let failed = || format!("failed to read `{}`", path.display());
    let metadata = std::fs::metadata(path).with_context(failed)?;
    if !metadata.is_file() {
        bail!(
            "`{0}` is not a file\nhint: pack an OCI layout directory with `tar -C {0} -cf layout.tar .`",
            path.display()
        );
    }
    let mut file = File::open(path).await.with_context(failed)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        // Piece by piece, so that a signal is noticed.
        match file.read(&mut piece).await.with_context(failed)? {
            0 => break,
            count => digest.update(&piece[..count]),
        }
    }
    file.rewind().await.with_context(failed)?;
    let hash = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((file, hash))
}

/// Deletes what no template needs, or shows it.
pub async fn gc(client: &Client, args: GcArgs) -> Result<ExitCode> {
    let outcome = match args.dry_run {
        true => "nothing was deleted",
        false => "what the server has begun to delete is deleted",
    };
    interruptible(collect(client, args), || outcome.to_owned()).await
}

async fn collect(client: &Client, args: GcArgs) -> Result<ExitCode> {
    let garbage = client.collect_garbage(args.dry_run).await?;
    if args.json {
        out!("{}", json!(garbage));
        return Ok(ExitCode::SUCCESS);
    }
    let _ = output::write(listed(&garbage).as_bytes());
    note!(
        "{} {}, {} and {}: {}",
        if args.dry_run { "would delete" } else { "deleted" },
        count(garbage.steps.len(), "cached step"),
        count(garbage.layers.len(), "layer"),
        count(garbage.uploads, "upload"),
        size_of(garbage.bytes),
    );
    Ok(ExitCode::SUCCESS)
}

/// The table of what is deleted.
fn listed(garbage: &Garbage) -> String {
    let row = |kind: &str, item: &GarbageItem| [item.name.clone(), kind.to_owned(), size_of(item.bytes)];
    let steps = garbage.steps.iter().map(|item| row("step", item));
    let layers = garbage.layers.iter().map(|item| row("layer", item));
    table(["name", "kind", "size"], &steps.chain(layers).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_a_table() {
        let item = |name: &str, bytes| GarbageItem { name: name.to_owned(), bytes };
        let (steps, layers) = (vec![item("long-name", 5 << 20)], vec![item("short", 12 << 20)]);
        let garbage = Garbage { dry_run: true, steps, layers, uploads: 0, bytes: 17 << 20 };
        let rows = listed(&garbage);
        let kinds: Vec<_> = rows.lines().map(|line| line.get(11..16)).collect();
        assert_eq!(kinds, [Some("kind "), Some("step "), Some("layer")], "{rows}");
    }
}
