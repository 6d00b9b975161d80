//! The zygote: the warm Python process of a sandbox, from which its Python kernels are forked in milliseconds.
//!
//! A zygote comes in one of two ways. The host forks it into the sandbox from the template's warm process, which has its own
//! protocol with the host (`sandcove_kernel/warm.py`), and this program finds the control socket as its standard input. Without
//! such a fork, or when that one has died, this module starts a zygote, which takes a second or more to be warm.
//!
//! The whole protocol between a zygote and this module, which is the same for both:
//!
//! - A zygote that is started here is `python3 -m sandcove_kernel --zygote 0`, run in the directory of that package, with one end
//!   of a SOCK_SEQPACKET unix socket pair as descriptor 0. Its own output goes to its descriptors 1 and 2.
//! - This module requests a kernel by sending one byte with three descriptors (SCM_RIGHTS), in this order: the kernel's end of
//!   a stream socket pair, the writing end of the pipe that becomes its descriptor 1, and the same for descriptor 2. Requests
//!   made before the process is warm wait in the socket.
//! - The zygote does not answer. The kernel says `hello` with its process id on the socket it was given, and from then on
//!   speaks the frames of [`crate::kernel::frame`]. If it cannot start, that socket is closed.
//! - When a kernel ends, the zygote sends its process id and the signal that ended it, or 0, as two decimal numbers: `1234 9`.
//!   It sends nothing when the socket is full, so nobody has to read.
//! - A kernel leads a session and group of its own. It dies with the zygote; the zygote ends when the control socket does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use sandcove_wire::boot::ENV_WARM_MODULES;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::config::Config;
use crate::kernel::{Ending, Ends, Escalation, Kernel, Link, Reports, StartError};

/// Bytes of a report about the end of a kernel.
const MAX_REPORT: usize = 64;

/// The zygote, started when it is first needed if the host has not forked one into the sandbox, and again when it has died.
#[derive(Debug)]
pub struct Zygote {
    program: OsString,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    running: Mutex<Option<Running>>,
    /// Whether the host has forked the running zygote into the sandbox, and no kernel has been forked from it yet.
    untried: AtomicBool,
}

/// The control socket of a zygote.
#[derive(Debug)]
struct Control {
    socket: OwnedFd,
    /// Signals of ended kernels whose reports were read while that about another was looked for.
    ended: std::sync::Mutex<BTreeMap<i32, i32>>,
}

impl Control {
    fn new(socket: OwnedFd) -> Arc<Self> {
        Arc::new(Self { socket, ended: std::sync::Mutex::default() })
    }
}

impl Reports for Control {
    fn take(&self, pid: i32) -> Option<i32> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; MAX_REPORT];
        while let Ok((read @ 1.., _)) = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            let report = buffer.get(..read).and_then(|report| std::str::from_utf8(report).ok());
            let numbers = report.and_then(|report| report.split_once(' '));
            if let Some((Ok(pid), Ok(signal))) = numbers.map(|(pid, signal)| (pid.parse(), signal.parse())) {
                ended.insert(pid, signal);
            }
        }
        ended.remove(&pid)
    }
}

/// A zygote that is there, though perhaps not warm yet.
#[derive(Debug)]
struct Running {
    control: Arc<Control>,
    /// The process, killed when dropped. A zygote that the host has forked into the sandbox ends when its socket does.
    _process: Option<Child>,
}

impl Zygote {
    /// Takes the control socket of the host's fork, if there is one. Starts nothing yet.
    pub fn new(config: &Config) -> Self {
        Self {
            program: config.python.clone(),
            directory: config.python_dir.clone(),
            environment: config
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .chain(config.warm_modules.clone().map(|modules| (ENV_WARM_MODULES.into(), modules)))
                .collect(),
            untried: AtomicBool::new(config.zygote_on_stdin),
            running: Mutex::new(if config.zygote_on_stdin { handed_over() } else { None }),
        }
    }

    /// Starts a kernel with the environment and directory of the zygote.
    pub async fn start_kernel(&self) -> Result<Kernel, StartError> {
        let started = self.try_start_kernel().await;
        if !self.untried.swap(false, Ordering::Relaxed) || started.is_ok() {
            return started;
        }
        // The host's fork into this sandbox failed: nothing is lost but time.
        tracing::warn!("the warm process from outside does not answer, starting one here");
        *self.running.lock().await = None;
        self.try_start_kernel().await
    }

    async fn try_start_kernel(&self) -> Result<Kernel, StartError> {
        let (link, ends) = Link::pair().map_err(StartError::Descriptors)?;
        let control = self.fork(&ends).await?;
        // Our copies of its ends would hide its death from us.
        drop(ends);
        Kernel::connect(link, Escalation::Repeat, Ending::Reported(control)).await
    }

    async fn fork(&self, ends: &Ends) -> Result<Arc<Control>, StartError> {
        let mut running = self.running.lock().await;
        if let Some(zygote) = &*running {
            match zygote.request_kernel(ends) {
                Ok(()) => return Ok(Arc::clone(&zygote.control)),
                Err(error) => tracing::warn!(%error, "lost the warm process, starting another"),
            }
        }
        let zygote = running.insert(self.spawn()?);
        zygote.request_kernel(ends).map_err(StartError::Descriptors)?;
        Ok(Arc::clone(&zygote.control))
    }

    fn spawn(&self) -> Result<Running, StartError> {
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| StartError::Descriptors(error.into()))?;
        let process = Command::new(&self.program)
            .args(["-m", "sandcove_kernel", "--zygote", "0"])
            .current_dir(&self.directory)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(theirs))
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| StartError::Spawn {
                program: self.program.to_string_lossy().into_owned(),
                source,
            })?;
        Ok(Running { control: Control::new(control), _process: Some(process) })
    }
}

/// Takes the control socket of the host's fork from standard input, which becomes an empty file.
fn handed_over() -> Option<Running> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?;
    let nothing = std::fs::File::open("/dev/null").ok()?;
    rustix::stdio::dup2_stdin(nothing).ok()?;
    Some(Running { control: Control::new(control), _process: None })
}

impl Running {
    fn request_kernel(&self, ends: &Ends) -> std::io::Result<()> {
        let descriptors = [ends.socket.as_fd(), ends.outputs.stdout.as_fd(), ends.outputs.stderr.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.control.socket, &[IoSlice::new(b"k")], &mut ancillary, flags)?;
        Ok(())
    }
}
