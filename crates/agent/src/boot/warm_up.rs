//! The warm-up: does what first requests do before the first one comes, so that the files they look up are cached and the
//! pages they write are allocated. Leaves no visible trace.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::account::Accounts;
use crate::spawn::{Children, Controls, Credentials, Launch, Stdio, daemon_path};

/// Account that most commands run under.
const USER: &str = "user";
/// How long the warm-up may delay the sandbox.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs one command as clients do.
pub(super) async fn run(children: &Children) {
    if tokio::time::timeout(TIMEOUT, command(children)).await.is_err() {
        tracing::debug!("the warm-up takes too long");
    }
}

async fn command(children: &Children) -> Option<()> {
    let account = Accounts::load().ok()?.lookup(USER)?;
    let environment =
        [("PATH", daemon_path()), ("HOME", account.home.clone()), ("USER", account.name.clone())];
    let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let arguments = ["-l", "-c", ":"].map(str::to_owned);
    let launch = Launch::new(
        "/bin/bash",
        &arguments,
        &environment,
        &account.home,
        Credentials::of(&account),
        Controls::Workload,
    )
    .ok()?;
    let child = children.spawn(&launch, nowhere().ok()?).await.ok()?;
    let _ = child.exit.await;
    Some(())
}

fn nowhere() -> io::Result<Stdio> {
    let null: OwnedFd = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into();
    Ok(Stdio::Streams([null.try_clone()?, null.try_clone()?, null]))
}
