//! The host side's end of the socket to the server.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use sandcove_channel::{Incoming, Outgoing, Sender, Sending};
use sandcove_isolate::Backend;
use tokio::net::UnixStream;

use crate::bounds::{Bounds, Permits};
use crate::envelope::{ToHost, ToServer};
use crate::failure::Failure;
use crate::menu::{Menu, Served};
use crate::message::Request;
use crate::outcome::FailureText;

/// Executes the requests of the server at the other end of `stream` until it closes the connection. What is held for the server is
/// released then; sandboxes go on.
///
/// # Errors
/// If the connection breaks, or the server sends an unknown request.
// In a box, so that its code is compiled with this crate: that of an async function is compiled with the crate that awaits it.
#[inline(never)]
pub fn serve(backend: Backend, stream: UnixStream) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(execute(backend, stream))
}

async fn execute(backend: Backend, stream: UnixStream) -> io::Result<()> {
    let menu = Arc::new(Menu::new(backend));
    let _forgetting = Forgetting(menu.clone());
    let stream = Arc::new(stream);
    let sending = Sending::new(stream.clone());
    let bounds = Arc::new(Bounds::default());
    let mut incoming = Incoming::new(stream);
    while let Some((message, fd)) = incoming.next::<ToHost>().await? {
        match message {
            ToHost::Order(order) => menu.order(order),
            ToHost::Ask(id, request) => {
                let mut permits = bounds.admit(&request, incoming.length()).await;
                let (menu, bounds, outgoing) = (menu.clone(), bounds.clone(), sending.sender());
                tokio::spawn(async move {
                    permits.extend(bounds.begin(&request).await);
                    answer(&menu, id, request, fd, permits, &outgoing).await;
                });
            }
        }
    }
    Ok(())
}

/// Releases what is held when the connection ends: requests that wait for a sandbox keep the menu.
struct Forgetting(Arc<Menu>);

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.0.forget_all();
    }
}

async fn answer(
    menu: &Menu,
    id: u64,
    request: Request,
    fd: Option<OwnedFd>,
    permits: Permits,
    outgoing: &Sender,
) {
    let (outcome, number, fd) = match menu.serve(request, fd).await {
        Ok(Served { answer, number, fd }) => (Ok(answer), number, fd),
        Err(failure) => (Err(FailureText::from(failure)), None, None),
    };
    let message = Outgoing::new(&ToServer { id, outcome, number }, fd, permits);
    let message = message.or_else(|error| {
        let outcome = Err(FailureText::from(Failure::Io(error)));
        Outgoing::new(&ToServer { id, outcome, number }, None, Permits::new())
    });
    match message {
        // A server that is gone needs no answer.
        Ok(message) => drop(outgoing.send(message)),
        Err(error) => tracing::error!(%error, "failed to write an answer to the server"),
    }
}
