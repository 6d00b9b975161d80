//! The way from the server to the host side.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::UnixStream;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::menu::Menu;
use crate::message::{Number, Order, Request, SandboxRequest};
use crate::reply::{Held, Reply};

/// The way to the host side; clones lead to the same.
#[derive(Clone)]
pub(crate) enum Link {
    /// The host side is in this process.
    Here(Arc<Menu>),
    /// The host side is another process.
    There(Arc<Connection>),
}

impl Link {
    /// The way to a process at the other end of `stream`.
    pub(crate) fn there(stream: UnixStream) -> Self {
        Self::There(Arc::new(Connection::new(stream)))
    }

    /// Sends a request and waits for its answer. Over a connection, cancelling the call does not cancel the request.
    pub(crate) async fn ask(&self, request: Request, fd: Option<OwnedFd>) -> Result<Reply, Failure> {
        match self {
            Self::Here(menu) => {
                let served = menu.serve(request, fd).await?;
                let held = served.number.map(|number| {
                    let menu = menu.clone();
                    Held::new(number, Arc::new(move |number| menu.order(Order::Forget(number))))
                });
                Ok(Reply { answer: served.answer, held, fd: served.fd })
            }
            Self::There(connection) => connection.ask(request, fd).await,
        }
    }

    /// Sends a request for one sandbox.
    pub(crate) async fn ask_sandbox(
        &self,
        sandbox: Number,
        request: SandboxRequest,
    ) -> Result<Reply, Failure> {
        self.ask(Request::Sandbox(sandbox, request), None).await
    }

    /// Sends a message that is not answered.
    pub(crate) fn order(&self, message: Order) {
        match self {
            Self::Here(menu) => menu.order(message),
            Self::There(connection) => connection.order(&message),
        }
    }
}
