//! The start of the daemon: as PID 1 with what the host hands over, or by hand.

mod error;
mod files;
mod host;
mod log;
mod output;
mod ready_port;
mod services;
mod start_command;
mod sys;
mod warm_up;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use sandcove_wire::boot::{AGENT_PORT, BOOT_FD, Boot, CONTROL_FD, Settings, ZYGOTE_FD};
use sandcove_wire::secret::Secret;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::process::Processes;
use crate::server;
use crate::spawn::{Children, Reaping};
use crate::state::{Identity, State};
use crate::{facts, trust};
pub use error::BootError;
use error::system;
use host::Host;
pub use log::init as init_log;

/// How long processes have to end after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of a daemon that is run by hand.
#[derive(Debug, Default)]
pub struct Standalone {
    /// Public port; 0 chooses a free one.
    pub port: u16,
    /// Token that requests must carry.
    pub token: Option<Secret>,
    /// User of requests that name none.
    pub user: Option<String>,
}

/// Serves without a host, for development and tests: there is no control socket, no service is started and no system file
/// written.
pub async fn run_standalone(options: Standalone) -> Result<(), BootError> {
    let settings =
        Settings { access_token: options.token, default_user: options.user, ..Settings::default() };
    let children = Children::start(Reaping::OwnChildren).map_err(system("watch for ended processes"))?;
    let state = State::new(settings);
    let pipeline = server::build(state, &Processes::new(Arc::clone(&children)));
    let listener = server::bind_public(options.port)
        .map_err(|source| BootError::Listen { port: options.port, source })?;
    let port = listener.local_addr().map_err(system("read the port"))?.port();
    // The only output on standard output, so that a test can read the port.
    println!("{port}");
    tokio::spawn(server::serve_tcp(listener, pipeline));
    ended_by_signal().await?;
    children.signal_all(Signal::TERM);
    Ok(())
}

/// Runs as the first process of a sandbox, until a signal ends it or the host gives up the sandbox.
pub async fn run_sandbox() -> Result<(), BootError> {
    let Handover { control, boot, mut host, zygote } = take_over()?;
    files::write(&boot);
    let reaping = if std::process::id() == 1 { Reaping::Everything } else { Reaping::OwnChildren };
    let children = Children::start(reaping).map_err(system("watch for ended processes"))?;
    let state = State::new(Settings { env_vars: Some(boot.env), ..Settings::default() });
    let processes = Processes::new(Arc::clone(&children));
    let pipeline = server::build(Arc::clone(&state), &processes);

    let public =
        server::bind_public(AGENT_PORT).map_err(|source| BootError::Listen { port: AGENT_PORT, source })?;
    let control = UnixListener::from_std(control).map_err(system("listen on the control socket"))?;
    tokio::spawn(server::serve_unix(control, Arc::clone(&pipeline)));
    tokio::spawn(server::serve_tcp(public, pipeline));
    tokio::spawn(server::serve_events(Arc::clone(&state)));
    tokio::spawn(log::keep_short());
    let ended = ended_by_signal();
    tokio::pin!(ended);
    // Waiting for a ready command may take minutes.
    let started = tokio::select! {
        keepers = services::start(boot.services, zygote, boot.warm_up, &state, &children, &processes) => {
            // Logged before the connection to the host ends: the host reads the log then.
            Some(keepers.inspect_err(|error| tracing::error!(%error, "the services did not start"))?)
        }
        ended = &mut ended => {
            ended?;
            None
        }
    };
    if let Some(_keepers) = started {
        if boot.warm_up {
            warm_up::run(&children).await;
        }
        host.acknowledge().await?;
        let assignment = tokio::select! {
            assignment = host.assignment() => assignment?,
            ended = &mut ended => {
                ended?;
                None
            }
        };
        // Without an assignment, the host does not need this sandbox any more.
        if let Some(assignment) = assignment {
            let identity =
                Identity { sandbox_id: assignment.sandbox_id.into(), template_id: boot.template_id };
            facts::write_identity(&identity.sandbox_id, &identity.template_id);
            state.assign(identity);
            if let Some(certificates) = &assignment.settings.ca_bundle
                && let Err(error) = trust::install(certificates)
            {
                tracing::error!(%error, "failed to install the certificates of the host");
            }
            state.apply(assignment.settings);
            host.acknowledge().await?;
            drop(host);
            ended.await?;
        }
    }
    children.signal_everything(Signal::TERM);
    if tokio::time::timeout(TERMINATE_TIMEOUT, children.all_gone()).await.is_err() {
        tracing::warn!("processes are left after the time to end; they are killed");
    }
    Ok(())
}

/// The descriptors and the boot message that the host hands over.
struct Handover {
    control: StdUnixListener,
    boot: Boot,
    host: Host,
    /// Socket to the zygote, for the service that takes it: the code interpreter.
    zygote: Option<OwnedFd>,
}

fn take_over() -> Result<Handover, BootError> {
    // Called once, before anything else is opened that could get one of these numbers.
    let take = |number| sys::adopt(number).ok_or(BootError::MissingDescriptor(number));
    let (control, host) = (take(CONTROL_FD)?, take(BOOT_FD)?);
    let (boot, host) = Host::meet(StdUnixStream::from(host)).map_err(BootError::Message)?;
    let control = StdUnixListener::from(control);
    control.set_nonblocking(true).map_err(system("prepare the control socket"))?;
    let zygote = if boot.zygote { sys::adopt(ZYGOTE_FD) } else { None };
    Ok(Handover { control, boot, host, zygote })
}

async fn ended_by_signal() -> Result<(), BootError> {
    let watch = |kind| signal(kind).map_err(system("watch for signals"));
    let (mut terminate, mut interrupt) = (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
