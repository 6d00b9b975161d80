//! The process that unpacks the layers of one import: its own side, and that of the process that has started it. Requests and answers are
//! JSON after its length; a layer follows its request as it is, compressed. Answers are short, and whoever reads them trusts them no more
//! than the layer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use rustix::fs::sendfile;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::digest::Digest;
use super::layer::{LayerError, Limits, Unpacker};
use super::target::{Sha256Digest, TargetError};

/// Maximum length of a request or an answer, bytes. The longest have a path of a layer in their text.
const MAX_MESSAGE: usize = 64 << 10;
/// Bytes that are passed on at once, which is also the room of the pipe. Unprivileged users have no larger ones by default.
const PART: usize = 1 << 20;

/// A request to the process.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// The first one: what the image is limited to.
    Begin(Limits),
    /// Unpack the layer that follows.
    Unpack {
        /// Size of the layer, bytes.
        size: u64,
        /// Digest of the layer when it is uncompressed.
        digest: Sha256Digest,
    },
    /// Complete the tree.
    Finish,
}

/// An answer of the process. There is none to the first request.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Size of all files, bytes: what was asked for is done.
    Done(u64),
    /// Fault of the layer, because of which it is not.
    Layer(LayerError),
    /// Fault of the host, in words.
    Failed(String),
}

/// The process, as its parent sees it. Dropping it ends it.
#[derive(Debug)]
pub(super) struct UnpackProcess {
    child: Child,
    requests: File,
    answers: File,
    killer: Arc<Killer>,
}

/// Ends the process while others wait for it.
#[derive(Debug)]
pub(super) struct Killer(OwnedFd);

impl Killer {
    pub(super) fn kill(&self) {
        // It fails when the process has ended.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl UnpackProcess {
    /// Talks to `child`, whose standard input and output are pipes.
    pub(super) fn new(mut child: Child, limits: Limits) -> io::Result<Self> {
        match Self::begin(&mut child, limits) {
            Ok((requests, answers, killer)) => {
                Ok(Self { child, requests, answers, killer: Arc::new(killer) })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn begin(child: &mut Child, limits: Limits) -> io::Result<(File, File, Killer)> {
        let number =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        // Nobody has waited for the child, so the number is still its own.
        let killer = Killer(pidfd_open(number, PidfdFlags::empty())?);
        let input = child.stdin.take().ok_or(io::ErrorKind::InvalidInput)?;
        let output = child.stdout.take().ok_or(io::ErrorKind::InvalidInput)?;
        let (mut requests, answers) = (File::from(OwnedFd::from(input)), File::from(OwnedFd::from(output)));
        // A smaller one is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(&requests, PART);
        tell(&mut requests, &Request::Begin(limits))?;
        Ok((requests, answers, killer))
    }

    /// Ends the process while it is in use.
    pub(super) fn killer(&self) -> Arc<Killer> {
        self.killer.clone()
    }

    /// Has a layer unpacked above those before.
    pub(super) fn unpack(&mut self, layer: &Blob, digest: Sha256Digest) -> Result<(), TargetError> {
        let request = Request::Unpack { size: layer.size, digest };
        let sent = tell(&mut self.requests, &request).and_then(|()| unless_gone(send(layer, &self.requests)));
        sent.map_err(TargetError::Host)?;
        self.answer().map(drop)
    }

    /// Has the tree completed; returns the size of its files, bytes. Afterwards the process has ended, and nothing writes to the tree.
    pub(super) fn finish(mut self) -> Result<u64, TargetError> {
        tell(&mut self.requests, &Request::Finish).map_err(TargetError::Host)?;
        let size = self.answer()?;
        self.killer.kill();
        self.child.wait().map_err(TargetError::Host)?;
        Ok(size)
    }

    fn answer(&mut self) -> Result<u64, TargetError> {
        match read(&mut self.answers) {
            Ok(Some(Answer::Done(size))) => Ok(size),
            Ok(Some(Answer::Layer(error))) => Err(TargetError::Layer(error)),
            Ok(Some(Answer::Failed(reason))) => Err(failed(&reason)),
            Ok(None) => {
                let status = self.child.wait().map_err(TargetError::Host)?;
                Err(failed(&format!("it has ended ({status})")))
            }
            Err(error) => {
                self.killer.kill();
                Err(failed(&error.to_string()))
            }
        }
    }
}

impl Drop for UnpackProcess {
    fn drop(&mut self) {
        self.killer.kill();
        let _ = self.child.wait();
    }
}

fn failed(reason: &str) -> TargetError {
    TargetError::Host(io::Error::other(format!("the process that unpacks the image failed: {reason}")))
}

/// Sends a request, if the process still takes requests.
fn tell(to: &mut File, request: &Request) -> io::Result<()> {
    unless_gone(write(to, request))
}

/// Forgives that the process takes no more: it has said why, or has ended, which the next answer shows.
fn unless_gone(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent,
    }
}

/// Copies a layer into the pipe, without reading it here.
fn send(layer: &Blob, pipe: &File) -> io::Result<()> {
    let (mut offset, mut left) = (layer.offset, layer.size);
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(PART).min(PART);
        let sent = match sendfile(pipe, &*layer.file, Some(&mut offset), part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(rustix::io::Errno::INTR) => continue,
            sent => sent?,
        };
        left = left.saturating_sub(sent as u64);
    }
    Ok(())
}

/// Unpacks at the requests of the process that has started this one, which come through standard input, and answers them through standard
/// output. The tree is the root directory by now, unless `entered` says why not.
///
/// # Errors
/// If that process sends an unknown request.
pub fn unpack_as_asked(entered: io::Result<()>) -> io::Result<()> {
    let mut requests = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut answers = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    serve(entered, Path::new("/"), &mut requests, &mut answers)
}

fn serve(
    entered: io::Result<()>,
    root: &Path,
    requests: &mut (impl Read + Send),
    answers: &mut impl Write,
) -> io::Result<()> {
    if let Err(error) = entered {
        return write(answers, &Answer::Failed(format!("it cannot give up the rights of root: {error}")));
    }
    let limits = match read(requests)? {
        Some(Request::Begin(limits)) => limits,
        Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        None => return Ok(()),
    };
    // It is ended by a signal when it is not needed any more.
    let mut unpacker = match Unpacker::new(root, limits, Arc::default()) {
        Ok(unpacker) => unpacker,
        Err(error) => return write(answers, &Answer::Layer(error)),
    };
    while let Some(request) = read(requests)? {
        let done = match request {
            Request::Begin(_) => return Err(io::ErrorKind::InvalidData.into()),
            Request::Unpack { size, digest } => {
                let mut layer = requests.take(size);
                unpacker.unpack(&mut layer, Some(&Digest::from_bytes(digest)))
            }
            Request::Finish => unpacker.finish(),
        };
        match done {
            Ok(()) => write(answers, &Answer::Done(unpacker.bytes()))?,
            // The rest of the layer stays unread: there are no further ones.
            Err(error) => return write(answers, &Answer::Layer(error)),
        }
    }
    Ok(())
}

fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    let head = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE).ok_or_else(too_long)?;
    bytes[..4].copy_from_slice(&head.to_le_bytes());
    to.write_all(&bytes)
}

/// Reads a message; `None` at the end.
fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    if from.by_ref().take(1).read(&mut head)? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..])?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_MESSAGE {
        return Err(too_long());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message is too long")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::oci::tests::support::{Tar, gzip};

    const LIMITS: Limits = Limits { bytes: 1 << 20, entries: 100 };

    fn message(request: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, request).unwrap();
        bytes
    }

    fn unpack(layer: &[u8], compressed: &[u8]) -> Vec<u8> {
        let request = Request::Unpack { size: compressed.len() as u64, digest: *Digest::of(layer).bytes() };
        [message(&request), compressed.to_vec()].concat()
    }

    /// The answers to these requests, with a tree.
    fn answers(requests: &[u8]) -> (tempfile::TempDir, Vec<Answer>, io::Result<()>) {
        let tree = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        let ended = serve(Ok(()), tree.path(), &mut &requests[..], &mut bytes);
        let (mut rest, mut answers) = (&bytes[..], Vec::new());
        while let Some(answer) = read(&mut rest).unwrap() {
            answers.push(answer);
        }
        (tree, answers, ended)
    }

    /// A process that runs a script instead.
    fn process(script: &str) -> UnpackProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        UnpackProcess::new(command.spawn().unwrap(), LIMITS).unwrap()
    }

    fn blob(bytes: &[u8]) -> Blob {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Blob::whole(file).unwrap()
    }

    fn reason(error: TargetError) -> String {
        match error {
            TargetError::Host(error) => error.to_string(),
            TargetError::Layer(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn layers_are_unpacked_until_one_is_wrong() {
        let good = Tar::new().file("a", "12").finish();
        let more = Tar::new().file("b", "345").finish();
        let begin = message(&Request::Begin(LIMITS));
        let two = [unpack(&good, &gzip(&good)), unpack(&more, &more)].concat();
        let (tree, found, ended) = answers(&[begin.clone(), two, message(&Request::Finish)].concat());
        assert!(ended.is_ok() && matches!(found[..], [Answer::Done(2), Answer::Done(5), Answer::Done(5)]));
        assert_eq!(std::fs::read(tree.path().join("b")).unwrap(), b"345");

        let other = unpack(b"another digest", &good);
        let (_, found, ended) = answers(&[begin, other, message(&Request::Finish)].concat());
        assert!(ended.is_ok() && matches!(found[..], [Answer::Layer(LayerError::Invalid(_))]), "{found:?}");
    }

    #[test]
    fn what_is_no_request_ends_it() {
        let begin = message(&Request::Begin(LIMITS));
        for requests in
            [&b"\xff\xff\xff\xff"[..], &message(&Request::Finish), &[&begin[..], &begin].concat(), b"\x04"]
        {
            let (_, found, ended) = answers(requests);
            assert!(found.is_empty() && ended.is_err(), "{requests:?}");
        }
        assert!(answers(b"").2.is_ok() && answers(&begin).2.is_ok());
    }

    #[test]
    fn a_process_that_ends_too_early_or_says_what_is_no_answer_is_an_error() {
        let large = vec![7; 4 << 20];
        for (script, expected) in [
            ("exit 3", "it has ended (exit status: 3)"),
            ("kill -9 $$", "signal: 9"),
            ("head -c 1000 > /dev/null; kill -9 $$", "signal: 9"),
            (r"printf '\377\377\377\377'; cat > /dev/null", "too long"),
            (r"printf '\003\000\000\000{}x'; cat > /dev/null", "expected"),
            (r"printf '\005\000\000\0001'", "fill"),
        ] {
            let mut process = process(script);
            let error = reason(process.unpack(&blob(&large), [0; 32]).unwrap_err());
            assert!(
                error.contains("the process that unpacks the image failed") && error.contains(expected),
                "{script}: {error}"
            );
            assert!(process.finish().is_err(), "{script}");
        }
    }

    #[test]
    fn a_process_that_cannot_give_up_its_rights_says_so_and_unpacks_nothing() {
        let mut bytes = Vec::new();
        serve(
            Err(io::ErrorKind::PermissionDenied.into()),
            Path::new("/nonexistent"),
            &mut &b""[..],
            &mut bytes,
        )
        .unwrap();
        let Some(Answer::Failed(text)) = read(&mut &bytes[..]).unwrap() else { panic!("no reason") };
        assert!(text.contains("permission denied"), "{text}");
    }

    #[test]
    fn a_process_that_reads_nothing_is_ended_by_who_gives_up() {
        let mut process = process("exec sleep 1000");
        let killer = process.killer();
        // More than the pipe takes: it waits until the process is gone.
        let waiting = std::thread::spawn(move || process.unpack(&blob(&vec![7; 4 << 20]), [0; 32]));
        killer.kill();
        assert!(reason(waiting.join().unwrap().unwrap_err()).contains("signal: 9"));
    }
}
