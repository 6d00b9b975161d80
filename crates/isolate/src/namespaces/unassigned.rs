//! Unassigned sandboxes: running, mounted, connected, with agent and services up, but without an id, token or variables.

use std::time::Duration;

use std::os::fd::OwnedFd;

use sandcove_wire::boot::{Assignment, READY, Renewal};
use sandcove_wire::id::SandboxId;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::control;
use super::host::Host;
use crate::{Error, Result};

/// Prefix of the directory names of unassigned sandboxes. Earlier versions used it too, so it stays.
pub(super) const POOLED_PREFIX: &str = "spare";
/// Timeout for a ready agent to acknowledge a message.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A sandbox without an id. Its processes, slot and directories must be released with `Host::discard`.
pub(super) struct UnassignedSandbox {
    /// Name of its directories until it gets an id.
    pub(super) name: SandboxId,
    /// Slot of the sandbox.
    pub(super) slot: u32,
    /// Host pid of PID 1.
    pub(super) pid: u32,
    /// Whether the sandbox was created for the pool.
    pub(super) pooled: bool,
    /// Way to its agent.
    pub(super) agent: Agent,
}

/// Way to the agent of an unassigned sandbox.
pub(super) enum Agent {
    /// Boot socket of an agent that has booted. The agent ends with it.
    Booted(UnixStream),
    /// Network namespace of an agent that was restored, with the identity that it had, and its template.
    Restored { namespace: OwnedFd, template_id: String },
}

impl UnassignedSandbox {
    /// Gives the agent its id and settings, and waits for it to take them. [`Error::ProcessGone`] when the agent does not: it is
    /// dead, or as good as dead.
    pub(super) async fn assign(&mut self, host: &Host, assignment: Assignment) -> Result<()> {
        let assigned = match &mut self.agent {
            Agent::Booted(socket) => send(socket, &assignment, ACKNOWLEDGE_TIMEOUT).await,
            Agent::Restored { namespace, template_id } => {
                let renewal = Renewal { template_id: template_id.clone(), assignment };
                control::renew(&host.dialer, namespace, &renewal).await
            }
        };
        assigned.map_err(|_| Error::ProcessGone)
    }
}

/// Writes one JSON line and waits for the agent's acknowledgement. It is a single byte: this process is root, and what an agent sends is
/// hostile, so that nothing is parsed here.
pub(super) async fn send<T: Serialize>(
    agent: &mut UnixStream,
    message: &T,
    timeout: Duration,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let answer = async {
        agent.write_all(&line).await?;
        agent.read_u8().await
    };
    match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(READY)) => Ok(()),
        Ok(Ok(_)) => Err(std::io::ErrorKind::InvalidData.into()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Outcome of a message to an agent that sends these bytes, and the number of those that are not read.
    async fn answered(bytes: &[u8]) -> (std::io::Result<()>, usize) {
        let (mut host, mut agent) = UnixStream::pair().unwrap();
        agent.write_all(bytes).await.unwrap();
        agent.shutdown().await.unwrap();
        let outcome = send(&mut host, &"message", Duration::from_secs(120)).await;
        let mut left = Vec::new();
        host.read_to_end(&mut left).await.unwrap();
        (outcome, left.len())
    }

    #[tokio::test]
    async fn of_what_an_agent_sends_one_byte_is_read() {
        let (outcome, left) = answered(&[READY]).await;
        assert!(outcome.is_ok() && left == 0);
        let mut long = vec![b'{'; 10_000];
        long[0] = READY;
        let (outcome, left) = answered(&long).await;
        assert!(outcome.is_ok() && left == 9_999);
        for (bytes, kind) in [(&b"{"[..], ErrorKind::InvalidData), (b"", ErrorKind::UnexpectedEof)] {
            assert_eq!(answered(bytes).await.0.unwrap_err().kind(), kind);
        }
    }
}
