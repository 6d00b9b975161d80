//! Services: programs that run for as long as the sandbox lives.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use sandcove_wire::boot::{ENV_WARM_UP, ENV_ZYGOTE, Service};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::BootError;
use super::start_command;
use crate::account::{Account, Accounts};
use crate::process::Processes;
use crate::spawn::{Child, Children, Controls, Credentials, Launch, SpawnError, Stdio, daemon_path};
use crate::state::{SharedState, State};

/// Pause before the first restart; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Run time after which a service that ends gets the first pause again.
const STABLE: Duration = Duration::from_secs(10);
/// First and longest pause between attempts to connect to a port that is not open yet. Others are a tenth of the time waited so far: where many
/// sandboxes start at once, attempts would take time from the service that they wait for.
const PORT_POLL: Duration = Duration::from_millis(1);
const MAX_PORT_POLL: Duration = Duration::from_millis(100);
/// How long a port is waited for. After that a sandbox without the service is better than none.
const PORT_TIMEOUT: Duration = Duration::from_secs(30);

/// An error of starting a service.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("the service has no command")]
    NoCommand,
    #[error("there is no user `{0}`")]
    NoUser(String),
    #[error("failed to prepare its streams: {0}")]
    Streams(#[from] io::Error),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("its end was not reported")]
    NotReported,
}

/// Starts all services and waits until their ports accept connections, then those that run once, one after the other. With
/// `warm_up`, their environment says that there is time for a warm-up. `zygote` is the socket to the zygote, for the service that
/// takes it. Services are restarted for as long as the returned tasks exist.
///
/// # Errors
/// If a service that runs once fails, or its ready command.
pub(super) async fn start(
    services: Vec<Service>,
    mut zygote: Option<OwnedFd>,
    warm_up: bool,
    state: &SharedState,
    children: &Arc<Children>,
    processes: &Processes,
) -> Result<JoinSet<()>, BootError> {
    let (once, services): (Vec<_>, Vec<_>) = services.into_iter().partition(|service| service.once);
    let mut keepers = JoinSet::new();
    let ports: Vec<(String, u16)> =
        services.iter().filter_map(|service| Some((service.name.clone(), service.ready_port?))).collect();
    for service in services {
        let input = if service.zygote { zygote.take() } else { None };
        keepers.spawn(keep_running(service, input, warm_up, Arc::clone(state), Arc::clone(children)));
    }
    for (service, port) in ports {
        if tokio::time::timeout(PORT_TIMEOUT, accepting(port)).await.is_err() {
            tracing::error!(service, port, "the service does not accept connections");
        }
    }
    for service in once {
        start_command::run(service, state, children, processes, &mut keepers).await?;
    }
    Ok(keepers)
}

async fn keep_running(
    service: Service,
    mut input: Option<OwnedFd>,
    mut warm_up: bool,
    state: SharedState,
    children: Arc<Children>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        match start_one(&service, input.take(), std::mem::take(&mut warm_up), &state, &children).await {
            Ok(child) => {
                let exit = child.exit.await;
                tracing::warn!(service = service.name, ?exit, "a service has ended and is restarted");
            }
            Err(error) => tracing::error!(service = service.name, %error, "failed to start a service"),
        }
        if started.elapsed() >= STABLE {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

async fn start_one(
    service: &Service,
    input: Option<OwnedFd>,
    warm_up: bool,
    state: &State,
    children: &Children,
) -> Result<Child, StartError> {
    let marks: Vec<&str> = [(ENV_ZYGOTE, input.is_some()), (ENV_WARM_UP, warm_up)]
        .into_iter()
        .filter_map(|(name, set)| set.then_some(name))
        .collect();
    let (launch, _) = prepare(service, &service.command, &marks, Controls::Inherited, state)?;
    Ok(children.spawn(&launch, streams(input)?).await?)
}

/// Prepares `command` with the account, the variables and the working directory of `service`. The variables in `marks` are set too.
pub(super) fn prepare(
    service: &Service,
    command: &[String],
    marks: &[&str],
    controls: Controls,
    state: &State,
) -> Result<(Launch, Account), StartError> {
    let (command, arguments) = command.split_first().ok_or(StartError::NoCommand)?;
    let account =
        Accounts::load()?.lookup(&service.user).ok_or_else(|| StartError::NoUser(service.user.clone()))?;
    let mut environment = state.variables();
    environment.entry("PATH".into()).or_insert_with(daemon_path);
    let own = [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name)];
    environment.extend(own.map(|(name, value)| (name.to_owned(), value.clone())));
    environment.extend(service.env.clone());
    environment.extend(marks.iter().map(|name| ((*name).to_owned(), "1".to_owned())));
    let credentials = Credentials::of(&account);
    let directory = service.cwd.as_deref().unwrap_or(&account.home);
    let launch = Launch::new(command, arguments, &environment, directory, credentials, controls)?;
    Ok((launch, account))
}

/// The streams of a service: `input` or nothing; standard output and error go where the daemon's own log goes.
fn streams(input: Option<OwnedFd>) -> io::Result<Stdio> {
    let input = match input {
        Some(input) => input,
        None => std::fs::File::open("/dev/null")?.into(),
    };
    let log = std::io::stderr().as_fd().try_clone_to_owned()?;
    Ok(Stdio::Streams([input, log.try_clone()?, log]))
}

async fn accepting(port: u16) {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        tokio::time::sleep((began.elapsed() / 10).clamp(PORT_POLL, MAX_PORT_POLL)).await;
    }
}
