//! The server process.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sandcove_channel::Channel;
use sandcove_host::Host;
use sandcove_isolate::{Unprivileged, crash};
use sandcove_names::DnsSockets;
use sandcove_server::otlp::Otlp;
use sandcove_server::{App, Listeners};
use tokio::net::{TcpListener, UdpSocket, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Listens, ToHost, ToServer};
use crate::host::{Start, open_app, serve_names};
use crate::log_filter::LogFormat;

/// Gives up all rights but those of `account` to `directory`, and runs a server until the host process has it stop. `observe` sets up
/// the log and the traces.
///
/// The calling process must have one thread.
pub fn run(
    account: u32,
    directory: &Path,
    log_refused_calls: bool,
    observe: fn(&Otlp, LogFormat) -> Result<()>,
) -> Result<ExitCode> {
    let socket = sandcove_isolate::passed_socket().context("this command is started by the server")?;
    let purpose = Unprivileged::Server { directory, ends_with_parent: true };
    sandcove_isolate::renounce(account, purpose, log_refused_calls)
        .with_context(|| format!("failed to give up the rights of root and become {account}"))?;
    crash::point("server.renounced");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(serve(socket, observe))
}

/// Descriptors and settings from the host process.
struct Given {
    host: Host,
    listeners: Listeners,
    dns: Option<DnsSockets>,
    start: Start,
    _lock: OwnedFd,
}

async fn serve(socket: OwnedFd, observe: fn(&Otlp, LogFormat) -> Result<()>) -> Result<ExitCode> {
    let _ignored = ignore_signals()?;
    let mut channel = Channel::new(socket)?;
    let Given { host, listeners, dns, mut start, _lock } = receive(&mut channel).await?;
    crash::point("server.introduced");
    let otlp = Otlp::start(&std::mem::take(&mut start.otlp))?;
    observe(&otlp, LogFormat::from_env())?;
    let names = start.names.clone();
    let app = match open_app(start, &host).await {
        Ok((app, key)) => {
            crash::point("server.opened");
            channel.send(&ToHost::Ready(key), None).await?;
            app
        }
        Err(error) => {
            channel.send(&ToHost::Failed(in_short(&error)), None).await?;
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Some(names) = names {
        serve_names(&app, dns, &names)?;
    }
    obey(&mut channel, app, host, listeners).await?;
    otlp.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// Serves, and does what the host process says, until the server has stopped.
async fn obey(channel: &mut Channel, app: App, host: Host, listeners: Listeners) -> Result<()> {
    let stop = CancellationToken::new();
    let (serving, stopping) = (app.clone(), stop.clone());
    let mut server = tokio::spawn(async move { serving.serve(listeners, stopping).await });
    let (switched, mut switches) = mpsc::channel(1);
    loop {
        tokio::select! {
            served = &mut server => return Ok(served??),
            Some(made) = switches.recv() => channel.send(&ToHost::Switched(made), None).await?,
            message = channel.receive() => match message? {
                Some((ToServer::Stop(how), _)) => {
                    let (app, stop) = (app.clone(), stop.clone());
                    tokio::spawn(async move {
                        how.prepare(&app).await;
                        stop.cancel();
                    });
                }
                Some((ToServer::Switch(switch), _)) => {
                    let (app, host, switched) = (app.clone(), host.clone(), switched.clone());
                    let work = async move {
                        let made = switch.make(&app, &host).await.map_err(|error| in_short(&error));
                        let _ = switched.send(made).await;
                    };
                    tokio::spawn(stop.clone().run_until_cancelled_owned(work));
                }
                Some((ToServer::Certificate(next), _)) => match app.certificates() {
                    Some(shown) => shown.replace(&next),
                    None => bail!(UNEXPECTED),
                },
                Some(_) => bail!(UNEXPECTED),
                // Nothing that is asked for would be done any more, and the kernel is about to kill this process.
                None => bail!("the host process has ended"),
            },
        }
    }
}

async fn receive(channel: &mut Channel) -> Result<Given> {
    let (mut host, mut lock) = (None, None);
    let (mut main, mut second, mut redirect) = (None, None, None);
    let (mut udp, mut tcp) = (None, None);
    loop {
        let Some((message, fd)) = channel.receive().await? else { bail!("the host process has ended") };
        match (message, fd) {
            (ToServer::Requests, Some(fd)) => host = Some(Host::there(unix_stream(fd)?)),
            (ToServer::Directory, Some(fd)) => lock = Some(fd),
            (ToServer::Listener(Listens::Dns), Some(fd)) => {
                udp = Some(UdpSocket::from_std(std::net::UdpSocket::from(fd))?);
            }
            (ToServer::Listener(what), Some(fd)) => {
                let listener = TcpListener::from_std(std::net::TcpListener::from(fd))?;
                let place = match what {
                    Listens::Main => &mut main,
                    Listens::Second => &mut second,
                    Listens::Redirect => &mut redirect,
                    Listens::DnsStream => &mut tcp,
                    Listens::Dns => bail!(UNEXPECTED),
                };
                *place = Some(listener);
            }
            (ToServer::Start(start), None) => {
                let (Some(host), Some(lock), Some(main)) = (host, lock, main) else {
                    bail!("the start came too early")
                };
                let listeners = Listeners { main, second, redirect };
                let dns = udp.zip(tcp).map(|(udp, tcp)| DnsSockets { udp, tcp });
                return Ok(Given { host, listeners, dns, start: *start, _lock: lock });
            }
            _ => bail!(UNEXPECTED),
        }
    }
}

const UNEXPECTED: &str = "the host process sent a message that does not belong here";

/// An error in words, of which the host process takes only so many.
fn in_short(error: &anyhow::Error) -> String {
    format!("{error:#}").chars().take(8 << 10).collect()
}

/// Has signals that are for the whole server do nothing here: the host process says what is to be done. A terminal and service managers
/// send them to both.
fn ignore_signals() -> std::io::Result<Vec<Signal>> {
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::user_defined1()]
        .map(signal)
        .into_iter()
        .collect()
}

fn unix_stream(fd: OwnedFd) -> std::io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
