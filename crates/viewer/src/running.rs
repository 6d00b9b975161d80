//! One run at a time, of a suite or a red team, in a process of its own, and its output.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::sse::Event;
use futures_util::{FutureExt, Stream, stream};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};

/// Lines that are kept of a run. What it prints is short; a target may print more.
const MAX_LINES: usize = 20_000;
/// Bytes that are kept of a line.
const MAX_LINE: usize = 10_000;

/// The time that the last lines of a run may take after its end.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Reason why nothing was started.
#[derive(Debug)]
pub(crate) enum StartError {
    /// Another run is running.
    Busy,
    /// The server was given no program.
    NoProgram,
    /// The program could not be started.
    Spawn { program: OsString, error: std::io::Error },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("something is running already; wait for it, or stop it"),
            Self::NoProgram => f.write_str("there is no program to start"),
            Self::Spawn { program, error } => write!(f, "failed to start `{}`: {error}", program.display()),
        }
    }
}

/// The variable with the process id of the program that started a run and holds the other end of its standard input. A run interrupts itself
/// when that end is closed.
pub const STARTER: &str = "SANDCOVE_STARTER";

/// Output of a run so far, and its exit status.
#[derive(Debug, Default)]
struct Printed {
    /// Counts runs; 0 before the first.
    run: u64,
    lines: Vec<String>,
    end: Option<i32>,
}

/// The run that was started last.
#[derive(Debug)]
pub(crate) struct Runs {
    /// The program that runs suites, and its first arguments.
    command: Vec<OsString>,
    home: PathBuf,
    printed: Arc<Mutex<Printed>>,
    /// Counts changes of `printed`.
    changes: watch::Sender<u64>,
    /// Interrupts what is running.
    interrupt: Arc<Notify>,
}

impl Runs {
    /// No run yet. `command` begins the command lines that run suites, and `home` is the directory of stored runs.
    pub(crate) fn new(command: Vec<OsString>, home: PathBuf) -> Self {
        // Where none was started, there is none to wait for.
        let printed = Printed { end: Some(0), ..Printed::default() };
        let printed = Arc::new(Mutex::new(printed));
        Self { command, home, printed, changes: watch::Sender::new(0), interrupt: Arc::default() }
    }

    /// Whether something is running.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.printed).end.is_none()
    }

    /// Starts the program with these arguments, in this directory.
    pub(crate) fn start(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        directory: &Path,
    ) -> Result<(), StartError> {
        let mut printed = lock(&self.printed);
        if printed.end.is_none() {
            return Err(StartError::Busy);
        }
        let (program, first) = self.command.split_first().ok_or(StartError::NoProgram)?;
        let child = Command::new(program)
            .args(first)
            .args(arguments)
            .current_dir(directory)
            .env("PROMPTFOO_CONFIG_DIR", &self.home)
            .env("NO_COLOR", "1")
            .env(STARTER, std::process::id().to_string())
            // Held open, and never written to: its end is how the run learns that this program was killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| StartError::Spawn { program: program.clone(), error })?;
        *printed = Printed { run: printed.run + 1, ..Printed::default() };
        drop(printed);
        self.changes.send_modify(|count| *count += 1);
        // One for the run before, which ended by itself meanwhile, is not for this one.
        let interrupt = Arc::clone(&self.interrupt);
        let _ = interrupt.notified().now_or_never();
        tokio::spawn(follow(child, interrupt, Arc::clone(&self.printed), self.changes.clone()));
        Ok(())
    }

    /// Interrupts what is running, as Ctrl-C does, and returns whether something was.
    pub(crate) fn stop(&self) -> bool {
        let is_running = self.is_running();
        if is_running {
            self.interrupt.notify_one();
        }
        is_running
    }

    /// `start` when something was started, its `lines` from the first as they come, and then `end` with its exit status.
    pub(crate) fn events(&self) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
        let reader = Reader { printed: Arc::clone(&self.printed), run: 0, at: 0, ended: 0 };
        stream::unfold((reader, self.changes.subscribe()), |(mut reader, mut changes)| async move {
            loop {
                changes.borrow_and_update();
                if let Some((name, data)) = reader.next() {
                    return Some((Ok(Event::default().event(name).data(data)), (reader, changes)));
                }
                changes.changed().await.ok()?;
            }
        })
    }
}

/// The position of a page in the output.
struct Reader {
    printed: Arc<Mutex<Printed>>,
    run: u64,
    at: usize,
    /// The run whose end was reported.
    ended: u64,
}

impl Reader {
    /// The next event, if there is one.
    fn next(&mut self) -> Option<(&'static str, String)> {
        let printed = lock(&self.printed);
        if printed.run != self.run {
            (self.run, self.at) = (printed.run, 0);
            // Browsers drop events without data.
            return Some(("start", self.run.to_string()));
        }
        if self.at < printed.lines.len() {
            let new = printed.lines[self.at..].join("\n");
            self.at = printed.lines.len();
            return Some(("lines", new));
        }
        let end = printed.end.filter(|_| self.ended != self.run)?;
        self.ended = self.run;
        Some(("end", end.to_string()))
    }
}

async fn follow(
    mut child: Child,
    interrupt: Arc<Notify>,
    printed: Arc<Mutex<Printed>>,
    changes: watch::Sender<u64>,
) {
    let (out, error) = (child.stdout.take(), child.stderr.take());
    // Waiting for a child closes its standard input.
    let _input = child.stdin.take();
    let end = async {
        loop {
            tokio::select! {
                status = child.wait() => return status,
                // A child that was waited for has no number any more, which may be that of another process.
                () = interrupt.notified() => if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
                    let _ = kill_process(pid, Signal::INT);
                },
            }
        }
    };
    let read =
        async { tokio::join!(read_lines(out, &printed, &changes), read_lines(error, &printed, &changes)) };
    tokio::pin!(read, end);
    let status = tokio::select! {
        _ = &mut read => end.await,
        status = &mut end => {
            // What it leaves in the background may keep its output open.
            let _ = tokio::time::timeout(LAST_LINES, &mut read).await;
            status
        }
    };
    let code = |status: ExitStatus| status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    let mut printed = lock(&printed);
    printed.end = Some(status.ok().and_then(code).unwrap_or(1));
    drop(printed);
    changes.send_modify(|count| *count += 1);
}

async fn read_lines(
    from: Option<impl AsyncRead + Unpin>,
    printed: &Mutex<Printed>,
    changes: &watch::Sender<u64>,
) {
    let Some(from) = from else { return };
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        line.truncate(MAX_LINE);
        // Carriage returns end lines in an event.
        let text = String::from_utf8_lossy(&line).trim_end().replace('\r', " ");
        let mut printed = lock(printed);
        if printed.lines.len() < MAX_LINES {
            printed.lines.push(text);
            drop(printed);
            changes.send_modify(|count| *count += 1);
        }
    }
}

fn lock(printed: &Mutex<Printed>) -> std::sync::MutexGuard<'_, Printed> {
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_ends_although_a_child_keeps_its_output_open() {
        let home = tempfile::tempdir().unwrap();
        let command = ["sh", "-c", "sleep 30 & echo begun; exit 3"].map(OsString::from).to_vec();
        let runs = Runs::new(command, home.path().to_owned());
        let mut changes = runs.changes.subscribe();
        runs.start(std::iter::empty::<&str>(), home.path()).unwrap();
        assert!(matches!(runs.start(std::iter::empty::<&str>(), home.path()), Err(StartError::Busy)));
        while runs.is_running() {
            tokio::time::timeout(Duration::from_secs(25), changes.changed()).await.unwrap().unwrap();
        }
        let printed = lock(&runs.printed);
        assert_eq!((printed.end, printed.lines.as_slice()), (Some(3), ["begun".to_owned()].as_slice()));
    }

    #[test]
    fn a_page_reads_every_line_once_and_begins_anew_with_the_next_run() {
        let printed = Arc::new(Mutex::new(Printed { end: Some(0), ..Printed::default() }));
        let mut reader = Reader { printed: Arc::clone(&printed), run: 0, at: 0, ended: 0 };
        assert_eq!(reader.next(), None);
        *lock(&printed) =
            Printed { run: 1, lines: vec!["a".to_owned(), "b".to_owned()], ..Printed::default() };
        assert_eq!(reader.next(), Some(("start", "1".to_owned())));
        assert_eq!(reader.next(), Some(("lines", "a\nb".to_owned())));
        assert_eq!(reader.next(), None);
        lock(&printed).lines.push("c".to_owned());
        lock(&printed).end = Some(100);
        assert_eq!(reader.next(), Some(("lines", "c".to_owned())));
        assert_eq!(reader.next(), Some(("end", "100".to_owned())));
        assert_eq!(reader.next(), None);
        *lock(&printed) = Printed { run: 2, ..Printed::default() };
        assert_eq!(reader.next(), Some(("start", "2".to_owned())));
        assert_eq!(reader.next(), None);
    }
}
