//! `sandcove backup`: everything that a data directory keeps, in one file, while its server runs or not.
//!
//! ```text
//!  database          a process with the rights of the server's account copies the database, and says what it names
//!  copies            what it names is copied in the pool, at once and sharing all data
//!  database          says which sandboxes have changed meanwhile: their memory may not fit their files any more
//!  collect           all of it becomes an archive
//! ```

mod collect;
mod database;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sandcove_backup::{Counts, Written};
use serde_json::json;

use super::count;
use super::serve::not_running;
use crate::data_dir::Lock;
use crate::output::{note, out};
use crate::server_dir;
use crate::settings::{DataDir, Settings};

pub use database::{DatabaseTask, run_task};

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// file to create, such as sandcove.tar.zst; `-` writes to standard output
    file: PathBuf,
    /// leave out the templates that come with Sandcove: a server of the same version builds them again
    #[arg(long)]
    no_server_templates: bool,
    /// print a summary as JSON
    #[arg(long)]
    json: bool,
}

/// Writes a backup of the data directory.
pub async fn backup(settings: &Settings, place: &DataDir, args: BackupArgs) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "a backup needs root: it has the files of all sandboxes, and the keys of this server\nhint: run the command with sudo"
        );
    }
    let data_dir = match settings.data_dir.canonicalize() {
        Ok(data_dir) => data_dir,
        Err(_) => bail!(not_running(&settings.data_dir)),
    };
    let plan = collect::Plan {
        data_dir,
        settings_file: place.config_file(),
        has_server_templates: !args.no_server_templates,
    };
    let is_pipe = args.file == Path::new("-");
    if is_pipe && args.json {
        bail!("the backup is written to standard output, and so would be the summary; leave out --json");
    }
    let file = args.file.clone();
    let (counts, written) = tokio::task::spawn_blocking(move || write(&plan, &file)).await??;
    report(&args, &counts, &written);
    Ok(ExitCode::SUCCESS)
}

/// Writes the backup to `file`, which is there only when it is complete.
fn write(plan: &collect::Plan, file: &Path) -> Result<(Counts, Written)> {
    let Some(account) = server_dir::claim(&plan.data_dir)? else { bail!(not_running(&plan.data_dir)) };
    // Where no server runs, none starts meanwhile.
    let _lock = if Lock::is_held(&plan.data_dir) { None } else { Some(Lock::take(&plan.data_dir)?) };
    let progress = Progress::new("backup", None);
    if file == Path::new("-") {
        let (_, counts, written) = collect::collect(plan, account, progress.writer(io::stdout().lock()))?;
        return Ok((counts, written));
    }
    let name = file.file_name().with_context(|| format!("`{}` is not the name of a file\nhint: name one, such as `backup.tar.zst`, or `-` for standard output", file.display()))?;
    if file.symlink_metadata().is_ok() {
        bail!("`{}` exists; choose another name, or delete it first", file.display());
    }
    let unfinished = file.with_file_name(format!(".{}.unfinished", name.to_string_lossy()));
    let failed = || format!("failed to write `{}`", file.display());
    let _ = std::fs::remove_file(&unfinished);
    let out =
        File::options().write(true).create_new(true).mode(0o600).open(&unfinished).with_context(failed)?;
    let finished =
        collect::collect(plan, account, progress.writer(out)).and_then(|(out, counts, written)| {
            out.into_inner()
                .sync_all()
                .and_then(|()| std::fs::rename(&unfinished, file))
                .with_context(failed)?;
            Ok((counts, written))
        });
    if finished.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    finished
}

fn report(args: &BackupArgs, counts: &Counts, written: &Written) {
    for skipped in &written.skipped {
        note!("left out: {skipped}");
    }
    let file = args.file.display().to_string();
    let size = args.file.metadata().map(|found| found.len()).unwrap_or_default();
    if args.json {
        out!(
            "{}",
            json!({
                "file": file,
                "bytes": size,
                "contentBytes": written.bytes,
                "sha256": written.sha256,
                "counts": counts,
                "skipped": written.skipped,
            })
        );
        return;
    }
    note!("backed up {}", summary(counts));
    if args.file != Path::new("-") {
        note!("wrote `{file}`, {} MiB of {} MiB", size >> 20, written.bytes >> 20);
    }
    note!("it holds the keys of this server: keep it where only its operators can read it");
}

/// The contents of a backup in words.
pub(super) fn summary(counts: &Counts) -> String {
    let mut text = count(counts.running_sandboxes + counts.paused_sandboxes, "sandbox");
    match (counts.running_sandboxes, counts.paused_sandboxes) {
        (0, _) => {}
        (1, 0) => text += " (running: its files, not its memory)",
        (running, _) => text += &format!(" ({running} of them running: their files, not their memory)"),
    }
    let others = [(counts.snapshots, "snapshot"), (counts.volumes, "volume"), (counts.layers, "layer")];
    for (number, noun) in others {
        text += &format!(", {}", count(number, noun));
    }
    text
}

/// The display of a transfer on standard error: a line that moves on a terminal, nothing elsewhere.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Starts the display; `total` is the number of bytes, if it is known.
    pub(super) fn new(verb: &'static str, total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let template = match total {
            Some(_) => "{spinner} {prefix} {wide_bar} {bytes} of {total_bytes}, {eta} left",
            None => "{spinner} {prefix} {elapsed} {bytes} written, {bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(verb);
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    fn writer<W: Write>(&self, out: W) -> Counted<'_, W> {
        Counted { out, bar: &self.0 }
    }

    /// A reader that moves the display.
    pub(super) fn reader<'a, R: io::Read + 'a>(&self, input: R) -> impl io::Read + 'a {
        self.0.wrap_read(input)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A writer that moves the display.
struct Counted<'a, W> {
    out: W,
    bar: &'a ProgressBar,
}

impl<W> Counted<'_, W> {
    fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.out.write(data)?;
        self.bar.inc(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
