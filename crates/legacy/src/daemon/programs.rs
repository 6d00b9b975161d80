//! Processes and terminals: programs that the agent starts, and what they write, as events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use sandcove_client::{CommandEvent, Controls, Input, Process, ProcessEvent, Program, TerminalSize};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::session::{Session, busy};
use crate::outbox::Gone;
use crate::rpc::{Channel, Id, ProgramId, Start};

/// Programs of one client that run at once.
const MAX_PROGRAMS: usize = 256;
/// Inputs of a program that wait to be written.
const MAX_INPUTS: usize = 1024;
/// Inputs of all programs of a client that wait to be written, bytes.
const MAX_INPUT: usize = 4 << 20;
/// Maximum length of a line, bytes; a longer one is cut.
const MAX_LINE: usize = 256 << 10;
/// Limit on the time that the agent takes to kill a program.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit on the time that the agent takes for a change once the program has ended.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Refusal of a change to a program that does not run.
const NOT_FOUND: &str = "not found";
/// Refusal of a change to a program that does not read what it was sent.
const TOO_SLOW: &str = "reads too slowly: too much input waits";

/// The programs of one client.
pub(super) struct Programs {
    running: Arc<Mutex<HashMap<ProgramId, Running>>>,
    /// Bytes of input that may still wait.
    room: Arc<Semaphore>,
}

impl Default for Programs {
    fn default() -> Self {
        Self { running: Arc::default(), room: Arc::new(Semaphore::new(MAX_INPUT)) }
    }
}

struct Running {
    inputs: mpsc::Sender<Change>,
    kill: CancellationToken,
}

/// A change of a running program, and the request to answer when it is made.
struct Change {
    id: Option<Id>,
    what: What,
    _room: OwnedSemaphorePermit,
}

enum What {
    Input(Bytes),
    Size(TerminalSize),
}

impl Programs {
    /// Starts a program, and answers when it runs.
    pub(super) async fn start(&self, session: &Session, id: Option<Id>, start: Start) -> Result<(), Gone> {
        let (inputs, changes) = mpsc::channel(MAX_INPUTS);
        let kill = session.ended.child_token();
        let refused = {
            let mut running = self.lock();
            if running.contains_key(&start.program) {
                Some(format!("{} with id {} already exists", start.program.service(), start.program.name()))
            } else if running.len() >= MAX_PROGRAMS {
                Some(format!("too many programs: a connection has at most {MAX_PROGRAMS}"))
            } else {
                running.insert(start.program.clone(), Running { inputs, kill: kill.clone() });
                None
            }
        };
        if let Some(refused) = refused {
            return session.answer(id, Err::<(), _>(refused)).await;
        }
        let (session, all) = (session.clone(), self.running.clone());
        tokio::spawn(async move {
            let program = start.program.clone();
            let ran = run(&session, id, start, changes, &kill).await;
            lock(&all).remove(&program);
            // Only now, so that the client may use the name again.
            if let Ok(Some((channel, code))) = ran {
                let sent = match &program {
                    ProgramId::Process(_) => session.event(&program, channel, &code).await,
                    ProgramId::Terminal(_) => session.event(&program, channel, &json!({})).await,
                };
                if sent.is_err() {
                    tracing::trace!("the client of a program is gone");
                }
            }
        });
        Ok(())
    }

    /// Writes to the input of a program, and answers when it is written.
    pub(super) async fn input(
        &self,
        session: &Session,
        id: Option<Id>,
        program: &ProgramId,
        text: String,
    ) -> Result<(), Gone> {
        self.change(session, id, program, What::Input(text.into())).await
    }

    /// Changes the size of a terminal.
    pub(super) async fn resize(
        &self,
        session: &Session,
        id: Option<Id>,
        program: &ProgramId,
        (columns, rows): (u16, u16),
    ) -> Result<(), Gone> {
        self.change(session, id, program, What::Size(TerminalSize { columns, rows })).await
    }

    async fn change(
        &self,
        session: &Session,
        id: Option<Id>,
        program: &ProgramId,
        what: What,
    ) -> Result<(), Gone> {
        let size = match &what {
            What::Input(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            What::Size(_) => 0,
        };
        let room = self.room.clone().try_acquire_many_owned(size);
        let inputs = self.lock().get(program).map(|running| running.inputs.clone());
        let why = match (inputs, room) {
            (None, _) => NOT_FOUND,
            (Some(_), Err(_)) => TOO_SLOW,
            (Some(inputs), Ok(room)) => match inputs.try_send(Change { id: id.clone(), what, _room: room }) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Full(_)) => TOO_SLOW,
                Err(mpsc::error::TrySendError::Closed(_)) => NOT_FOUND,
            },
        };
        refuse(session, id, program, why).await
    }

    /// Kills a program, if it runs.
    pub(super) fn kill(&self, program: &ProgramId) {
        if let Some(running) = self.lock().get(program) {
            running.kill.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProgramId, Running>> {
        lock(&self.running)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program to its end. Returns the event of its end, which is left to send, if it was started.
async fn run(
    session: &Session,
    id: Option<Id>,
    start: Start,
    changes: mpsc::Receiver<Change>,
    kill: &CancellationToken,
) -> Result<Option<(Channel, i32)>, Gone> {
    let begun = match session.permit() {
        Some(permit) => begin(session, &start).await.map(|process| (permit, process)),
        None => Err(busy()),
    };
    let (permit, process) = match begun {
        Ok(begun) => begun,
        Err(message) => {
            session.answer(id, Err::<(), _>(message)).await?;
            refuse_rest(session, &start.program, changes).await?;
            return Ok(None);
        }
    };
    let controls = process.controls();
    let is_running = CancellationToken::new();
    let guard = is_running.clone().drop_guard();
    tokio::spawn(end_with(kill.clone(), is_running.clone(), controls.clone(), session.guest.ended().clone()));
    session.answer(id, Ok(start.program.name())).await?;
    let (writer, program) = (session.clone(), start.program.clone());
    tokio::spawn(async move {
        let change = change_until(&is_running, &writer, &controls, &program, changes);
        if let Some(Err(Gone)) = writer.ended.run_until_cancelled(change).await {
            tracing::trace!("the client of a program is gone");
        }
    });
    let code = forward(session, &start.program, process).await;
    drop((guard, permit));
    code.map(|code| Some((Channel::Exit, code)))
}

async fn begin(session: &Session, start: &Start) -> Result<Process, String> {
    let sandbox = session.guest.sandbox();
    let mut envs = start.envs.clone();
    let (flags, input): (&[&str], _) = match start.size {
        None => (&["-l"], Input::Pipe),
        Some((columns, rows)) => {
            envs.entry("TERM".to_owned()).or_insert_with(|| "xterm".to_owned());
            (&["-i", "-l"], Input::Terminal(TerminalSize { columns, rows }))
        }
    };
    let mut arguments: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    if let Some(line) = &start.line {
        arguments.extend(["-c".to_owned(), line.clone()]);
    }
    // The agent would start a program without a directory in that of the template.
    let cwd = Some(if start.cwd.is_empty() { "~".to_owned() } else { start.cwd.clone() });
    let program = Program { program: "/bin/bash".to_owned(), arguments, envs, cwd, user: None, input };
    let (service, name) = (start.program.service(), start.program.name());
    match sandbox.start_program(&program).await {
        Ok(process) => Ok(process),
        Err(error) => {
            let is_missing = match &program.cwd {
                Some(cwd) => matches!(sandbox.stat(&crate::rpc::absolute(cwd)).await, Ok(None)),
                None => false,
            };
            let why = match is_missing {
                // Clients look for this text.
                true => "fork/exec /bin/bash: no such file or directory".to_owned(),
                false => error.to_string(),
            };
            Err(format!("error starting {service} '{name}': {why}"))
        }
    }
}

/// Kills the program when that is wanted, unless it ends before.
async fn end_with(
    kill: CancellationToken,
    is_running: CancellationToken,
    controls: Controls,
    sandbox_ended: CancellationToken,
) {
    // The client may have left during the start. Then both are cancelled already, and the program has to be killed.
    let wanted = tokio::select! {
        biased;
        () = kill.cancelled() => true,
        () = is_running.cancelled() => false,
    };
    // Nothing answers in a sandbox that is paused or gone.
    if wanted && !sandbox_ended.is_cancelled() {
        match timeout(KILL_TIMEOUT, controls.kill()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "program could not be killed"),
            Err(_) => tracing::debug!("program could not be killed in time"),
        }
    }
}

/// Makes changes until the program has ended, which is when `is_running` is cancelled. All of them are answered, also the one that ended it.
async fn change_until(
    is_running: &CancellationToken,
    session: &Session,
    controls: &Controls,
    program: &ProgramId,
    mut changes: mpsc::Receiver<Change>,
) -> Result<(), Gone> {
    while let Some(Some(Change { id, what, _room })) = is_running.run_until_cancelled(changes.recv()).await {
        let change = async {
            match what {
                What::Input(bytes) => controls.write(bytes).await,
                What::Size(size) => controls.resize(size).await,
            }
        };
        let end = async {
            is_running.cancelled().await;
            sleep(CHANGE_TIMEOUT).await;
        };
        tokio::select! {
            done = change => session.answer(id, done.map_err(|error| error.to_string())).await?,
            () = end => refuse(session, id, program, NOT_FOUND).await?,
        }
    }
    refuse_rest(session, program, changes).await
}

/// Answers the changes that are left when a program has ended or was not started.
async fn refuse_rest(
    session: &Session,
    program: &ProgramId,
    mut changes: mpsc::Receiver<Change>,
) -> Result<(), Gone> {
    changes.close();
    while let Some(Change { id, .. }) = changes.recv().await {
        refuse(session, id, program, NOT_FOUND).await?;
    }
    Ok(())
}

/// Answers a change that is not made.
async fn refuse(session: &Session, id: Option<Id>, program: &ProgramId, why: &str) -> Result<(), Gone> {
    let text = format!("{} {} {why}", program.service(), program.name());
    session.answer(id, Err::<(), _>(text)).await
}

/// Sends what a program writes, until its end, and returns its exit code.
async fn forward(session: &Session, program: &ProgramId, mut process: Process) -> Result<i32, Gone> {
    let mut output = Output { session, program, last: 0 };
    let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
    loop {
        // A client that is gone must not keep the output of its programs.
        let next = tokio::select! {
            next = process.next() => next,
            () = session.ended.cancelled() => return Err(Gone),
        };
        match next {
            Ok(ProcessEvent::Output(CommandEvent::Stdout(bytes))) => {
                stdout.extend_from_slice(&bytes);
                match program {
                    ProgramId::Process(_) => output.lines(Channel::Stdout, &mut stdout).await?,
                    ProgramId::Terminal(_) => output.data(&mut stdout, false).await?,
                }
            }
            Ok(ProcessEvent::Output(CommandEvent::Stderr(bytes))) => {
                stderr.extend_from_slice(&bytes);
                output.lines(Channel::Stderr, &mut stderr).await?;
            }
            end => {
                match program {
                    ProgramId::Process(_) => {
                        output.rest(Channel::Stdout, &stdout).await?;
                        output.rest(Channel::Stderr, &stderr).await?;
                    }
                    ProgramId::Terminal(_) => output.data(&mut stdout, true).await?,
                }
                return Ok(match end {
                    Ok(ProcessEvent::Exit(exit)) => exit.code,
                    _ => -1,
                });
            }
        }
    }
}

/// The output of a program.
struct Output<'a> {
    session: &'a Session,
    program: &'a ProgramId,
    /// Time of the last line, nanoseconds.
    last: u64,
}

impl Output<'_> {
    /// Sends the lines that are whole, and leaves the rest.
    async fn lines(&mut self, channel: Channel, buffer: &mut BytesMut) -> Result<(), Gone> {
        loop {
            let Some(line) = take_line(buffer) else { return Ok(()) };
            self.line(channel, &line).await?;
        }
    }

    /// Sends a last line that has no end.
    async fn rest(&mut self, channel: Channel, buffer: &[u8]) -> Result<(), Gone> {
        if buffer.is_empty() { Ok(()) } else { self.line(channel, buffer).await }
    }

    async fn line(&mut self, channel: Channel, line: &[u8]) -> Result<(), Gone> {
        let kind = if channel == Channel::Stderr { "Stderr" } else { "Stdout" };
        // Clients order lines by time.
        self.last = now().max(self.last + 1);
        let event = json!({ "type": kind, "line": String::from_utf8_lossy(line), "timestamp": self.last });
        self.session.event(self.program, channel, &event).await
    }

    /// Sends text of a terminal, and leaves a character of which bytes are missing, unless these are the last bytes.
    async fn data(&mut self, buffer: &mut BytesMut, is_last: bool) -> Result<(), Gone> {
        loop {
            let piece = &buffer[..buffer.len().min(MAX_LINE)];
            let is_rest = piece.len() == buffer.len();
            let end = if is_last && is_rest { piece.len() } else { whole_characters(piece) };
            if end == 0 {
                return Ok(());
            }
            let data = buffer.split_to(end);
            self.session.event(self.program, Channel::Data, &String::from_utf8_lossy(&data)).await?;
        }
    }
}

/// Takes the first line, without its end, if it is whole. A line that is too long is cut.
fn take_line(buffer: &mut BytesMut) -> Option<BytesMut> {
    // With the end of a line that is just as long as it may be.
    let piece = &buffer[..buffer.len().min(MAX_LINE + 1)];
    match piece.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = buffer.split_to(end);
            buffer.advance(1);
            Some(line)
        }
        None if piece.len() > MAX_LINE => {
            let end = whole_characters(&piece[..MAX_LINE]);
            Some(buffer.split_to(end))
        }
        None => None,
    }
}

/// Length of the bytes before a character that is not whole.
fn whole_characters(bytes: &[u8]) -> usize {
    let back = (1..=bytes.len().min(4)).map(|back| bytes.len() - back);
    // Bytes without a first one are invalid, and nothing to wait for.
    let Some(first) = back.into_iter().find(|&at| bytes[at] & 0xC0 != 0x80) else { return bytes.len() };
    let length = match bytes[first] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if first + length > bytes.len() { first } else { bytes.len() }
}

/// The time in nanoseconds.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_whole_unless_they_are_too_long() {
        let mut buffer = BytesMut::from(&b"a\n\nb"[..]);
        assert_eq!(take_line(&mut buffer).unwrap(), "a");
        assert_eq!(take_line(&mut buffer).unwrap(), "");
        assert!(take_line(&mut buffer).is_none());
        assert_eq!(buffer, "b");
        // As long as one message of the agent, and with an end.
        let mut buffer = BytesMut::from(format!("{}\n", "€".repeat(MAX_LINE)).as_str());
        let mut length = 0;
        while let Some(line) = take_line(&mut buffer) {
            assert!(line.len() <= MAX_LINE && std::str::from_utf8(&line).is_ok());
            length += line.len();
        }
        assert_eq!((length, buffer.len()), (3 * MAX_LINE, 0));
        let mut buffer = BytesMut::from(format!("{}\n", "x".repeat(MAX_LINE)).as_str());
        assert_eq!(take_line(&mut buffer).unwrap().len(), MAX_LINE);
        assert!(take_line(&mut buffer).is_none() && buffer.is_empty(), "one line and not two");
    }

    #[test]
    fn a_character_is_not_cut() {
        let text = "aß€🦀".as_bytes();
        for (length, whole) in
            [(0, 0), (1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6), (9, 6), (10, 10)]
        {
            assert_eq!(whole_characters(&text[..length]), whole, "{length}");
        }
        for invalid in [&b"\x80\x80\x80\x80\x80"[..], b"a\xff", b"\xc0"] {
            assert_eq!(whole_characters(invalid), invalid.len());
        }
    }
}
