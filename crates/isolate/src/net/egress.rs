//! The process of the egress proxies, as the host process sees it. It is started when the first sandbox needs a proxy, and again when it
//! ends by itself: its listeners are kept here, so that connections wait meanwhile and are not refused.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sandcove_channel::Channel;
use sandcove_egress::{Connection, FromEgress, Question, Reply, Rules, SocketKind, ToEgress};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::sockets::GUARDED_MARK;
use super::tracking::MAX_EACH;
use crate::secrets::Vault;
use crate::sys;

/// Timeout for the process to take a message, and to answer it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before the process is started again.
const RESTART: Duration = Duration::from_secs(1);
/// Beginnings of the names of variables that the process and its loader read.
const PASSED_ON: [&str; 5] = ["FAKETIME", "LD_", "RUST_", "SANDCOVE_LOG", "SSL_CERT_"];

/// How the process is started.
#[derive(Debug, Clone)]
pub(crate) struct EgressSetup {
    /// The `sandcove` program. It is opened once: a later version of it speaks another language.
    program: Arc<File>,
    account: Option<u32>,
    log_refused_calls: bool,
    log_json: bool,
    /// Keys and authority for the process.
    vault: Vault,
}

impl EgressSetup {
    /// The process runs `program`, with the rights of `account` only, if there is one.
    pub(crate) fn new(
        program: &std::path::Path,
        account: Option<u32>,
        log_refused_calls: bool,
        vault: Vault,
    ) -> io::Result<Self> {
        let program = Arc::new(File::open(program)?);
        Ok(Self { program, account, log_refused_calls, log_json: false, vault })
    }

    /// Lets the process write its log as JSON if asked.
    pub(crate) fn with_json(self, log_json: bool) -> Self {
        Self { log_json, ..self }
    }
}

/// The egress proxies of an instance.
#[derive(Debug)]
pub(super) struct Egress {
    setup: EgressSetup,
    /// Mark of sockets to the operator's name servers.
    resolver_mark: u32,
    changes: OnceLock<mpsc::UnboundedSender<Change>>,
}

type Done = oneshot::Sender<io::Result<()>>;

/// A change of the proxies.
#[derive(Debug)]
enum Change {
    Open(u32, Box<Held>, Done),
    Set(u32, Box<Rules>, Done),
    Close(u32),
    Ask(Question, oneshot::Sender<Reply>),
    /// The process did not answer in time.
    Restart,
}

/// Parts that a proxy is made of.
#[derive(Debug)]
struct Held {
    listener: OwnedFd,
    guest: Ipv4Addr,
    rules: Rules,
}

impl Egress {
    pub(super) fn new(setup: EgressSetup, resolver_mark: u32) -> Self {
        Self { setup, resolver_mark, changes: OnceLock::new() }
    }

    /// Opens a proxy at the host's `address` for the sandbox at `guest` in `slot`; returns the port.
    pub(super) async fn open(
        &self,
        slot: u32,
        address: Ipv4Addr,
        guest: Ipv4Addr,
        rules: Rules,
    ) -> io::Result<u16> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        let listener = socket.listen(MAX_EACH)?;
        let port = listener.local_addr()?.port();
        let held = Held { listener: listener.into_std()?.into(), guest, rules };
        self.change(|done| Change::Open(slot, Box::new(held), done)).await?;
        Ok(port)
    }

    /// Replaces the rules of a slot's proxy. Afterwards, no connection that they forbid is open.
    pub(super) async fn set(&self, slot: u32, rules: Rules) -> io::Result<()> {
        self.change(|done| Change::Set(slot, Box::new(rules), done)).await
    }

    /// Closes the proxy of a slot with all its connections.
    pub(super) fn close(&self, slot: u32) {
        // Without a task there is no proxy.
        if let Some(changes) = self.changes.get() {
            let _ = changes.send(Change::Close(slot));
        }
    }

    /// The addresses of `name`, as `servers` have it; none if it cannot be resolved.
    pub(super) async fn addresses(&self, name: &str, servers: &[Ipv4Addr]) -> io::Result<Vec<Ipv4Addr>> {
        let question = Question::Addresses { name: name.to_owned(), servers: servers.to_vec() };
        match self.ask(question).await? {
            Reply::Addresses(addresses) => Ok(addresses),
            Reply::Log(_) => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// The last connections through the proxy of a slot.
    pub(super) async fn log(&self, slot: u32) -> io::Result<Vec<Connection>> {
        match self.ask(Question::Log { slot }).await? {
            Reply::Log(connections) => Ok(connections),
            Reply::Addresses(_) => Err(ErrorKind::InvalidData.into()),
        }
    }

    async fn ask(&self, question: Question) -> io::Result<Reply> {
        let (reply, answer) = oneshot::channel();
        let gone = || io::Error::other("the process of the egress proxies has ended");
        self.changes().send(Change::Ask(question, reply)).map_err(|_| gone())?;
        timeout(TIMEOUT, answer).await?.map_err(|_| gone())
    }

    fn changes(&self) -> &mpsc::UnboundedSender<Change> {
        self.changes.get_or_init(|| {
            let (sender, changes) = mpsc::unbounded_channel();
            tokio::spawn(Keeper::new(self.setup.clone(), self.resolver_mark).run(changes));
            sender
        })
    }

    async fn change(&self, change: impl FnOnce(Done) -> Change) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        let changes = self.changes();
        let gone = || io::Error::other("the process of the egress proxies has ended");
        changes.send(change(done)).map_err(|_| gone())?;
        match timeout(TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|_| gone())?,
            Err(_) => {
                let _ = changes.send(Change::Restart);
                Err(io::Error::new(ErrorKind::TimedOut, "the process of the egress proxies does not answer"))
            }
        }
    }
}

/// Keeps the process running.
struct Keeper {
    setup: EgressSetup,
    resolver_mark: u32,
    held: HashMap<u32, Held>,
    process: Option<Process>,
}

/// The running process.
struct Process {
    _child: Child,
    channel: Channel,
    /// Callers of the changes that the process has not acknowledged, oldest first.
    waiting: VecDeque<Option<Done>>,
    /// Callers of the questions that it has not answered.
    asked: HashMap<u64, oneshot::Sender<Reply>>,
    next: u64,
}

impl Keeper {
    fn new(setup: EgressSetup, resolver_mark: u32) -> Self {
        Self { setup, resolver_mark, held: HashMap::new(), process: None }
    }

    async fn run(mut self, mut changes: mpsc::UnboundedReceiver<Change>) {
        loop {
            let is_missing = self.process.is_none() && !self.held.is_empty();
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.obey(change).await,
                    None => return,
                },
                message = receive(&mut self.process) => match message {
                    Ok(Some((message, _))) => self.answer(message).await,
                    Ok(None) => self.lose("it has ended"),
                    Err(error) => self.lose(&error.to_string()),
                },
                () = sleep(RESTART), if is_missing => {
                    if let Err(error) = self.start().await {
                        tracing::error!(%error, "failed to start the process of the egress proxies");
                    }
                }
            }
        }
    }

    async fn obey(&mut self, change: Change) {
        match change {
            Change::Open(slot, held, done) => {
                let message = ToEgress::Open { slot, guest: held.guest, rules: held.rules.clone() };
                let fd = match self.start().await.and_then(|()| held.listener.try_clone()) {
                    Ok(fd) => fd,
                    Err(error) => return drop(done.send(Err(error))),
                };
                self.held.insert(slot, *held);
                self.send(&message, Some(fd), Some(done)).await;
            }
            Change::Set(slot, rules, done) => {
                let Some(held) = self.held.get_mut(&slot) else {
                    return drop(done.send(Err(ErrorKind::NotFound.into())));
                };
                held.rules = (*rules).clone();
                if let Err(error) = self.start().await {
                    return drop(done.send(Err(error)));
                }
                self.send(&ToEgress::Set { slot, rules: *rules }, None, Some(done)).await;
            }
            Change::Close(slot) => {
                if self.held.remove(&slot).is_some() && self.process.is_some() {
                    self.send(&ToEgress::Close { slot }, None, None).await;
                }
            }
            Change::Ask(question, reply) => {
                if let Err(error) = self.start().await {
                    return tracing::error!(%error, "failed to start the process of the egress proxies");
                }
                let Some(process) = &mut self.process else { return };
                // Nobody waits any more for some of them.
                process.asked.retain(|_, reply| !reply.is_closed());
                let number = process.next;
                process.next += 1;
                process.asked.insert(number, reply);
                if let Err(error) = process.send(&ToEgress::Ask(number, question), None).await {
                    self.lose(&error.to_string());
                }
            }
            Change::Restart => self.lose("it does not answer"),
        }
    }

    /// Starts the process, if it is not running, with all proxies.
    async fn start(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut process = Process::spawn(&self.setup)?;
        let (keys, authority) = (self.setup.vault.keys(), self.setup.vault.authority());
        let (keys, authority) =
            (keys.map_err(io::Error::other)?.text(), authority.map_err(io::Error::other)?);
        let signing = self.setup.vault.signing().map_err(io::Error::other)?.text();
        process.send(&ToEgress::Setup { keys, authority, signing }, None).await?;
        process.waiting.push_back(None);
        for (&slot, held) in &self.held {
            let message = ToEgress::Open { slot, guest: held.guest, rules: held.rules.clone() };
            process.send(&message, Some(held.listener.try_clone()?)).await?;
            process.waiting.push_back(None);
        }
        self.process = Some(process);
        Ok(())
    }

    /// Sends a change to the process; `done` learns when it is in effect.
    async fn send(&mut self, message: &ToEgress, fd: Option<OwnedFd>, done: Option<Done>) {
        let Some(process) = &mut self.process else { return };
        process.waiting.push_back(done);
        if let Err(error) = process.send(message, fd).await {
            self.lose(&error.to_string());
        }
    }

    async fn answer(&mut self, message: FromEgress) {
        let Some(process) = &mut self.process else { return };
        match message {
            FromEgress::Done => match process.waiting.pop_front() {
                Some(done) => drop(done.map(|done| done.send(Ok(())))),
                None => self.lose("it has acknowledged what was not asked for"),
            },
            FromEgress::Answer(number, reply) => {
                // One without a caller is of a caller that has given up.
                if let Some(asked) = process.asked.remove(&number) {
                    let _ = asked.send(reply);
                }
            }
            FromEgress::Socket(kind) => {
                let (message, fd) = match socket(kind, self.resolver_mark) {
                    Ok(socket) => (ToEgress::Socket, Some(socket)),
                    Err(error) => (ToEgress::NoSocket(error.raw_os_error().unwrap_or_default()), None),
                };
                if let Err(error) = process.send(&message, fd).await {
                    self.lose(&error.to_string());
                }
            }
        }
    }

    /// Kills the process, and fails the changes that it has not acknowledged.
    fn lose(&mut self, reason: &str) {
        if self.process.take().is_some() {
            tracing::warn!(reason, "lost the process of the egress proxies; connections by name were cut");
        }
    }
}

/// Waits for a message of the process, forever if there is none.
async fn receive(process: &mut Option<Process>) -> io::Result<Option<(FromEgress, Option<OwnedFd>)>> {
    match process {
        Some(process) => process.channel.receive().await,
        None => std::future::pending().await,
    }
}

impl Process {
    fn spawn(setup: &EgressSetup) -> io::Result<Self> {
        let (near, far) = StdUnixStream::pair()?;
        // The new process has the descriptor until the program replaces it.
        let mut command = Command::new(format!("/proc/self/fd/{}", setup.program.as_raw_fd()));
        command.arg0("sandcove").arg("__egress").arg(setup.account.unwrap_or_default().to_string());
        command.args(setup.log_refused_calls.then_some("--log-refused-calls"));
        let is_passed_on = |name: &OsStr| {
            PASSED_ON.iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes()))
        };
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_passed_on(name)));
        if setup.log_json {
            command.env("SANDCOVE_LOG_FORMAT", "json");
        }
        let child = command
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            _child: child,
            channel: Channel::new(near.into())?,
            waiting: VecDeque::new(),
            asked: HashMap::new(),
            next: 0,
        })
    }

    async fn send(&self, message: &ToEgress, fd: Option<OwnedFd>) -> io::Result<()> {
        timeout(TIMEOUT, self.channel.send(message, fd)).await?
    }
}

/// Makes a socket that leads where `kind` may.
fn socket(kind: SocketKind, resolver_mark: u32) -> io::Result<OwnedFd> {
    let (type_, mark) = match kind {
        SocketKind::Stream => (SocketType::STREAM, GUARDED_MARK),
        SocketKind::Datagram => (SocketType::DGRAM, GUARDED_MARK),
        SocketKind::ResolverStream => (SocketType::STREAM, resolver_mark),
        SocketKind::ResolverDatagram => (SocketType::DGRAM, resolver_mark),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, type_, flags, None)?;
    sys::mark(std::os::fd::AsFd::as_fd(&socket), mark)?;
    Ok(socket)
}
