//! The host process.

use std::ffi::OsStr;
use std::future::Future;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sandcove_channel::Channel;
use sandcove_isolate::Backend;
use sandcove_names::DnsSockets;
use sandcove_server::Listeners;
use sandcove_server::tls::{Certificate, Source};
use sandcove_wire::secret::Secret;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{Listens, ToHost, ToServer};
use crate::data_dir::{Lock, ServerFile};
use crate::host::{Machine, Start, Stop};
use crate::languages::{Switch, Upgrade};
use crate::listening::Listening;
use crate::log_filter::{self, LogFormat};
use crate::server_dir::{self, Occupied};
use crate::settings::Settings;

/// Variables with secrets, which are passed on in the start message: variables can be read in `/proc` for as long as a process lives.
const SECRETS: [&str; 3] = ["SANDCOVE_API_KEY", "SANDCOVE_ACCESS_TOKEN", "SANDCOVE_ADMIN_TOKEN"];
/// Beginnings of the names of variables that the server, its libraries and the loader read. All others stay here: who starts a server may
/// have keys of anything among them.
const PASSED_ON: [&str; 17] = [
    "FAKETIME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LC_",
    "LD_",
    "NO_PROXY",
    "OTEL_",
    "PATH",
    "RUST_",
    "SANDCOVE_",
    "SSL_CERT_",
    "TMPDIR",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Timeouts for a server process: one that was taken over may read nothing, and not stop.
#[derive(Debug, Clone, Copy)]
struct Timeouts {
    /// Time until a message is taken.
    message: Duration,
    /// Time until the process has stopped.
    stop: Duration,
    /// Time until it has stopped when it is to kill all sandboxes before, or to store their memory.
    end: Duration,
}

impl Timeouts {
    /// Many times what a server on a busy host takes.
    const USUAL: Self = Self {
        message: Duration::from_secs(30),
        stop: Duration::from_secs(90),
        end: Duration::from_secs(600),
    };
}

/// A server in this process and another one that is ready to serve.
pub struct Split {
    process: ServerProcess,
    file: ServerFile,
    lock: Lock,
    certificates: Option<Source>,
    upgrade: Option<Upgrade>,
}

/// The server process, as the host process sees it.
struct ServerProcess {
    child: Child,
    channel: Channel,
    requests: AbortOnDropHandle<std::io::Result<()>>,
}

/// A switch that the server process is to make, and where its answer goes.
type Asked = (Switch, oneshot::Sender<Result<(), String>>);

impl Split {
    /// Prepares this host, and starts a server process with the rights of `account`. To be called by the first thread of this process:
    /// the kernel ends the server process when the thread ends that has started it.
    pub async fn start(settings: &Settings, account: u32) -> Result<Self> {
        sandcove_isolate::pass_on_no_descriptors().context("failed to keep descriptors to this process")?;
        let machine = Machine::prepare(settings, account).await?;
        let backend = machine.backend.clone();
        let started = Self::on(machine, account, settings.seccomp_log, settings.log_format).await;
        if started.is_err() {
            backend.abandon().await;
        }
        started
    }

    async fn on(machine: Machine, account: u32, log_refused_calls: bool, log: LogFormat) -> Result<Self> {
        let Machine { backend, listening, lock, occupied, data_dir, start, upgrade } = machine;
        let directory = server_dir::path(&data_dir);
        let (mut process, requests) =
            ServerProcess::spawn(backend, account, &directory, log_refused_calls, log)?;
        let Listening { url, names, listeners, certificate, public, .. } = listening;
        let dns = public.and_then(|(_, sockets)| sockets);
        let api_key = process.introduce(Given { requests, occupied, listeners, dns, start }).await?;
        let file = ServerFile { url, api_key, pid: std::process::id(), names };
        let certificates = certificate.map(|(_, source)| source);
        Ok(Self { process, file, lock, certificates, upgrade })
    }

    /// The address and key of the server.
    pub fn file(&self) -> &ServerFile {
        &self.file
    }

    /// Serves until `stop` says how to end, or the server process ends by itself. Meanwhile, builds the remaining template layer, and has
    /// the server process use new certificates. Returns the exit status of the server process.
    pub async fn serve(self, stop: impl Future<Output = Stop>) -> Result<ExitCode> {
        self.serve_with(stop, Timeouts::USUAL).await
    }

    async fn serve_with(self, stop: impl Future<Output = Stop>, timeouts: Timeouts) -> Result<ExitCode> {
        let Self { process, lock, certificates, upgrade, .. } = self;
        let ServerProcess { mut child, mut channel, mut requests } = process;
        let (renewals, mut renewal) = mpsc::channel(1);
        let _renewing =
            certificates.map(|source| AbortOnDropHandle::new(tokio::spawn(renew(source, renewals))));
        let (switches, mut switch) = mpsc::channel::<Asked>(1);
        let _building = upgrade.map(|upgrade| AbortOnDropHandle::new(tokio::spawn(build(upgrade, switches))));
        let mut stop = pin!(stop);
        // When the process has to have stopped.
        let mut deadline = None;
        let (mut answers, mut listening) = (true, true);
        let mut asked = None;
        loop {
            tokio::select! {
                status = child.wait() => return exit_code(status?),
                how = &mut stop, if deadline.is_none() => {
                    let time = match how {
                        Stop::KeepingSandboxes => timeouts.stop,
                        Stop::EndingSandboxes | Stop::WithHost => timeouts.end,
                    };
                    deadline = Some(Instant::now() + time);
                    lock.leave_or_warn();
                    tell(&channel, &ToServer::Stop(how), timeouts).await?;
                }
                () = reached(deadline) => bail!("the server process has not stopped in time, and was killed"),
                Some((change, answer)) = switch.recv() => {
                    asked = Some(answer);
                    tell(&channel, &ToServer::Switch(Box::new(change)), timeouts).await?;
                }
                Some(next) = renewal.recv() => {
                    tell(&channel, &ToServer::Certificate(Box::new(next)), timeouts).await?;
                }
                message = channel.receive(), if listening => match message {
                    Ok(Some((ToHost::Switched(made), _))) => {
                        // Nobody waits when the building was given up.
                        asked.take().map(|answer: oneshot::Sender<_>| answer.send(made));
                    }
                    Ok(None) => listening = false,
                    Ok(Some(_)) => bail!(UNEXPECTED),
                    Err(error) => return Err(error).context("failed to talk to the server process"),
                },
                ended = &mut requests, if answers => {
                    answers = false;
                    if let Err(error) = ended?
                        && error.kind() == ErrorKind::InvalidData
                    {
                        // Dropping the process kills it.
                        return Err(error).context("the server process sent an unknown request");
                    }
                    // It has closed the connection, in its last moments or because it was killed.
                }
            }
        }
    }
}

/// Sends a message to the server process. If it has ended, nothing is sent, and its end is noticed elsewhere.
async fn tell(channel: &Channel, message: &ToServer, timeouts: Timeouts) -> Result<()> {
    let sent = timeout(timeouts.message, channel.send(message, None)).await;
    // Dropping the process kills it.
    let _ = sent.map_err(|_| anyhow!("the server process takes no messages, and was killed"))?;
    Ok(())
}

/// Waits for a time, or without one for ever.
async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Whether the server process gets the variable of this name.
fn is_passed_on(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    PASSED_ON.iter().any(|begin| name.starts_with(begin)) && !SECRETS.contains(&name)
}

impl ServerProcess {
    fn spawn(
        backend: Backend,
        account: u32,
        directory: &Path,
        log_refused_calls: bool,
        log: LogFormat,
    ) -> Result<(Self, UnixStream)> {
        let (near, far) = StdUnixStream::pair().context("failed to make a socket pair")?;
        let program = std::env::current_exe().context("failed to find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("__server").arg(account.to_string()).arg(directory).current_dir("/");
        command.args(log_refused_calls.then_some("--log-refused-calls"));
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_passed_on(name)));
        command.env(log_filter::FORMAT, log.name());
        let child = command
            .stdin(Stdio::from(OwnedFd::from(far)))
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the server process")?;
        let channel = Channel::to_server(near.into())?;
        let (near, far) = UnixStream::pair().context("failed to make a socket pair")?;
        let requests = AbortOnDropHandle::new(tokio::spawn(sandcove_host::serve(backend, near)));
        Ok((Self { child, channel, requests }, far))
    }

    /// Sends what the server process needs, and waits until it is ready; returns the API key of the server.
    async fn introduce(&mut self, given: Given) -> Result<Secret> {
        let Given { requests, occupied, listeners, dns, start } = given;
        let Listeners { main, second, redirect } = listeners;
        let sent = async {
            self.channel.send(&ToServer::Requests, Some(requests.into_std()?.into())).await?;
            self.channel.send(&ToServer::Directory, Some(occupied.into())).await?;
            let of_use =
                [(Listens::Main, Some(main)), (Listens::Second, second), (Listens::Redirect, redirect)];
            for (what, listener) in of_use {
                let Some(listener) = listener else { continue };
                self.channel.send(&ToServer::Listener(what), Some(listener.into_std()?.into())).await?;
            }
            if let Some(DnsSockets { udp, tcp }) = dns {
                self.channel
                    .send(&ToServer::Listener(Listens::DnsStream), Some(tcp.into_std()?.into()))
                    .await?;
                self.channel.send(&ToServer::Listener(Listens::Dns), Some(udp.into_std()?.into())).await?;
            }
            self.channel.send(&ToServer::Start(Box::new(start)), None).await
        };
        // A process that has ended says why, or its status does.
        let _: std::io::Result<()> = sent.await;
        match self.channel.receive().await? {
            Some((ToHost::Ready(key), _)) => Ok(key),
            Some((ToHost::Failed(reason), _)) => Err(anyhow!(reason)),
            Some((ToHost::Switched(_), _)) => bail!(UNEXPECTED),
            None => bail!("the server process has ended before it was ready ({})", self.child.wait().await?),
        }
    }
}

/// Descriptors and settings for the server process.
struct Given {
    requests: UnixStream,
    occupied: Occupied,
    listeners: Listeners,
    dns: Option<DnsSockets>,
    start: Start,
}

const UNEXPECTED: &str = "the server process sent a message that does not belong here";

/// Waits for certificates that replace the one in use, and passes them on.
async fn renew(source: Source, renewals: mpsc::Sender<Certificate>) {
    // It fails when the server stops.
    while renewals.send(source.next().await).await.is_ok() {}
}

/// Builds the layer with further languages, and has the server process use it.
async fn build(upgrade: Upgrade, switches: mpsc::Sender<Asked>) {
    let ask = async move |switch| {
        let (answer, made) = oneshot::channel();
        // It fails when the server stops.
        let gone = |_| anyhow!("the server has stopped");
        switches.send((switch, answer)).await.map_err(|_| anyhow!("the server has stopped"))?;
        made.await.map_err(gone)?.map_err(|reason| anyhow!(reason))
    };
    upgrade.run(ask).await;
}

/// The exit status of this process for the one of the server process.
fn exit_code(status: ExitStatus) -> Result<ExitCode> {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        (None, signal) => bail!(
            "the server process was killed by signal {}; sandboxes keep running and are found again at the next start",
            signal.unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server process that does nothing, and the other end of its channel.
    fn idle(directory: &Path) -> (Split, StdUnixStream) {
        let (near, far) = StdUnixStream::pair().unwrap();
        let child = Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let channel = Channel::to_server(near.into()).unwrap();
        let requests = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let file =
            ServerFile { url: String::new(), api_key: Secret::new("k"), pid: 1, names: Default::default() };
        let process = ServerProcess { child, channel, requests };
        let lock = Lock::take(directory).unwrap();
        (Split { process, file, lock, certificates: None, upgrade: None }, far)
    }

    #[tokio::test]
    async fn a_server_process_that_does_not_stop_is_killed() {
        for how in [Stop::KeepingSandboxes, Stop::EndingSandboxes, Stop::WithHost] {
            let directory = tempfile::tempdir().unwrap();
            let (split, _unread) = idle(directory.path());
            let number = split.process.child.id().unwrap();
            let (never, soon) = (Duration::from_secs(3600), Duration::from_millis(50));
            let timeouts = match how {
                Stop::KeepingSandboxes => Timeouts { message: never, stop: soon, end: never },
                Stop::EndingSandboxes | Stop::WithHost => Timeouts { message: never, stop: never, end: soon },
            };
            let error = split.serve_with(std::future::ready(how), timeouts).await.unwrap_err();
            assert!(error.to_string().contains("has not stopped in time"), "{error}");
            is_killed(number);
        }
    }

    #[tokio::test]
    async fn a_server_process_that_takes_no_messages_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let (split, _unread) = idle(directory.path());
        let number = split.process.child.id().unwrap();
        // Whatever is not read fills the socket.
        let full = async {
            loop {
                split.process.channel.send(&ToServer::Stop(Stop::KeepingSandboxes), None).await.unwrap();
            }
        };
        timeout(Duration::from_millis(200), full).await.unwrap_err();
        let never = Duration::from_secs(3600);
        let timeouts = Timeouts { message: Duration::from_millis(50), stop: never, end: never };
        let stop = std::future::ready(Stop::KeepingSandboxes);
        let error = split.serve_with(stop, timeouts).await.unwrap_err();
        assert!(error.to_string().contains("takes no messages"), "{error}");
        is_killed(number);
    }

    /// Waits for the end of a process.
    fn is_killed(number: u32) {
        let state = || std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_server_process_gets_no_keys_of_others() {
        for (name, expected) in [
            ("PATH", true),
            ("SANDCOVE_LOG", true),
            ("OTEL_EXPORTER_OTLP_HEADERS", true),
            ("SANDCOVE_API_KEY", false),
            ("E2B_API_KEY", false),
            ("AWS_SECRET_ACCESS_KEY", false),
        ] {
            assert_eq!(is_passed_on(OsStr::new(name)), expected, "{name}");
        }
    }
}
