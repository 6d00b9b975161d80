//! The egress process: it does what the host process says until that has ended.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use sandcove_channel::{Incoming, Outgoing, Sender, Sending};
use tokio::net::{TcpListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::rustls::RootCertStore;

use crate::authority::{Authority, Issuing};
use crate::headers::Keys;
use crate::identity::SigningKeys;
use crate::intercept::Interception;
use crate::keyring::Keyring;
use crate::message::{FromEgress, Question, Reply, ToEgress};
use crate::proxy::{ConnectionLimits, Context, Proxy};
use crate::resolver::resolve;
use crate::rules::{NameServers, Rules};
use crate::sockets::Sockets;

/// Maximum number of threads that copy bytes of sandboxes.
const MAX_THREADS: usize = 4;

/// Reads the certificate authorities that this host trusts; hosts with rules need a certificate of one of them. To be called while the
/// process has files.
pub fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Runs the egress proxies that the host process at the other end of `socket` asks for, until it closes the socket.
///
/// # Errors
/// An error if the connection breaks, or what arrives is no message.
pub fn run(socket: OwnedFd, roots: RootCertStore) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, |found| found.get().min(MAX_THREADS));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("egress")
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(socket, Arc::new(roots)));
    runtime.shutdown_background();
    served
}

async fn serve(socket: OwnedFd, roots: Arc<RootCertStore>) -> io::Result<()> {
    // A terminal and service managers send signals to all processes of a server. The host process says what they mean.
    let _ignored =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    let socket = StdUnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let stream = Arc::new(UnixStream::from_std(socket)?);
    let sending = Sending::new(stream.clone());
    let mut proxies = Proxies::new(sending.sender(), roots);
    let mut incoming = Incoming::new(stream);
    while let Some((message, fd)) = incoming.next().await? {
        proxies.obey(message, fd)?;
    }
    Ok(())
}

/// The proxies of all sandboxes.
struct Proxies {
    by_slot: HashMap<u32, Proxy>,
    limits: ConnectionLimits,
    sockets: Sockets,
    roots: Arc<RootCertStore>,
    /// There after the first message.
    context: Option<Arc<Context>>,
    outgoing: Sender,
}

impl Proxies {
    fn new(outgoing: Sender, roots: Arc<RootCertStore>) -> Self {
        let (sockets, limits) = (Sockets::new(outgoing.clone()), ConnectionLimits::new());
        Self { by_slot: HashMap::new(), limits, sockets, roots, context: None, outgoing }
    }

    fn set_up(&mut self, keys: Keys, authority: &Authority) -> io::Result<()> {
        self.context = Some(Arc::new(Context {
            sockets: self.sockets.clone(),
            keys,
            interception: Interception::new(Issuing::new(authority)?, self.roots.clone()),
        }));
        Ok(())
    }

    fn obey(&mut self, message: ToEgress, fd: Option<OwnedFd>) -> io::Result<()> {
        match message {
            ToEgress::Setup { keys, authority, signing } => {
                let (secrets, signing) =
                    (Keyring::parse(keys.expose())?, SigningKeys::parse(signing.expose())?);
                self.set_up(Keys { secrets, signing }, &authority)?;
            }
            ToEgress::Open { slot, guest, rules } => {
                let listener = fd.ok_or(ErrorKind::InvalidData)?;
                // The former one is closed first.
                self.by_slot.remove(&slot);
                self.by_slot.insert(slot, self.open(listener, guest, rules)?);
            }
            ToEgress::Set { slot, rules } => {
                self.by_slot.get(&slot).ok_or(ErrorKind::InvalidData)?.set(rules);
            }
            ToEgress::Close { slot } => drop(self.by_slot.remove(&slot)),
            ToEgress::Socket => return self.sockets.answer(Ok(fd.ok_or(ErrorKind::InvalidData)?)),
            ToEgress::Ask(number, question) => return self.answer(number, question),
            ToEgress::NoSocket(number) => {
                return self.sockets.answer(Err(io::Error::from_raw_os_error(number)));
            }
        }
        self.outgoing.send(Outgoing::new(&FromEgress::Done, None, Vec::new())?)
    }

    fn answer(&self, number: u64, question: Question) -> io::Result<()> {
        let send = move |outgoing: &Sender, reply| {
            outgoing.send(Outgoing::new(&FromEgress::Answer(number, reply), None, Vec::new())?)
        };
        match question {
            Question::Log { slot } => {
                let log = self.by_slot.get(&slot).map(Proxy::connections).unwrap_or_default();
                send(&self.outgoing, Reply::Log(log))
            }
            Question::Addresses { name, servers } => {
                let (sockets, outgoing) = (self.sockets.clone(), self.outgoing.clone());
                tokio::spawn(async move {
                    let addresses = resolve(&name, &NameServers::Trusted(servers), &sockets).await;
                    // Without the other side, this process ends.
                    let _ = send(&outgoing, Reply::Addresses(addresses.unwrap_or_default()));
                });
                Ok(())
            }
        }
    }

    fn open(&self, listener: OwnedFd, guest: Ipv4Addr, rules: Rules) -> io::Result<Proxy> {
        let listener = TcpListener::from_std(std::net::TcpListener::from(listener))?;
        let context = self.context.clone().ok_or(ErrorKind::InvalidData)?;
        Ok(Proxy::open(listener, guest, rules, &self.limits, context))
    }
}
