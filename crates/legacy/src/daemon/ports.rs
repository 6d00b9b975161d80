//! The ports on which something in the sandbox listens, once a second.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sandcove_client::{CommandEvent, ProcessEvent, Program};
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT, METADATA_ADDRESS};
use serde_json::{Value, json};

use super::session::Session;
use crate::rpc::Id;

/// Prints the tables of the kernel once a second, with a dot behind them.
const SCAN: &str = "while cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; echo .; do sleep 1; done";
/// State of a listening socket, in hexadecimal as in the tables.
const LISTEN: &str = "0A";
/// Maximum size of the tables, bytes.
const MAX_TABLES: usize = 1 << 20;

/// Answers, and then sends what listens.
pub(super) async fn scan(session: &Session, id: Option<Id>, subscription: &str) {
    let program = Program {
        program: "/bin/sh".to_owned(),
        arguments: ["-c", SCAN].map(str::to_owned).into(),
        user: Some("root".to_owned()),
        cwd: Some("/".to_owned()),
        ..Program::default()
    };
    let guest = session.guest.clone();
    // In a task of its own: the agent starts the program also for a client that leaves meanwhile, and its process outlives the stream of its
    // output.
    let started = tokio::spawn(async move {
        let process = guest.sandbox().start_program(&program).await.map_err(|error| error.to_string())?;
        let controls = process.controls();
        let killed = Killed(Some(async move {
            if !guest.ended().is_cancelled()
                && let Err(error) = controls.signal("KILL").await
            {
                tracing::debug!(%error, "scan of ports could not be ended");
            }
        }));
        Ok((process, killed))
    });
    let (mut process, _killed) = match started.await.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(started) => started,
        Err(error) => {
            let text = format!("error scanning ports: {error}");
            return session.refuse_subscription(id, subscription, text).await;
        }
    };
    if session.answer(id, Ok(subscription)).await.is_err() {
        return;
    }
    let mut tables = String::new();
    while let Ok(ProcessEvent::Output(event)) = process.next().await {
        if let CommandEvent::Stdout(bytes) = event {
            tables.push_str(&String::from_utf8_lossy(&bytes));
        }
        while let Some(end) = tables.find("\n.\n") {
            let opened = opened(&tables[..end]);
            tables.drain(..end + 3);
            if session.notify("codeSnippet", subscription, &opened).await.is_err() {
                return;
            }
        }
        if tables.len() > MAX_TABLES {
            tables.clear();
        }
    }
}

/// Work that is done when this is dropped.
struct Killed<F: Future<Output = ()> + Send + 'static>(Option<F>);

impl<F: Future<Output = ()> + Send + 'static> Drop for Killed<F> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

/// The listening sockets of the kernel's tables, without those of the sandbox's own services.
fn opened(tables: &str) -> Vec<Value> {
    let opened = tables.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, state) = (fields.next()?, fields.nth(1)?);
        let (ip, port) = address.split_once(':')?;
        let (ip, port) = (address_of(ip)?, u16::from_str_radix(port, 16).ok()?);
        let is_own = [AGENT_PORT, INTERPRETER_PORT].contains(&port) || ip == METADATA_ADDRESS;
        (state == LISTEN && !is_own).then(|| json!({ "Ip": ip.to_string(), "Port": port, "State": "LISTEN" }))
    });
    opened.collect()
}

/// An address of the tables, whose words have the byte order of the host.
fn address_of(hexadecimal: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hexadecimal.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hexadecimal.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index * 8)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read_from_the_tables() {
        let tables = "  sl  local_address rem_address   st tx_queue\n   \
            0: 00000000:1F90 00000000:0000 0A 00000000:00000000\n   \
            1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000\n   \
            2: 00000000:C33F 00000000:0000 0A 00000000:00000000\n   \
            3: 010200C0:0050 00000000:0000 0A 00000000:00000000\n   \
            0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0\n bad\n x y:z w 0A";
        let expected = [("0.0.0.0", 8080), ("::1", 80)];
        let expected = expected.map(|(ip, port)| json!({ "Ip": ip, "Port": port, "State": "LISTEN" }));
        assert_eq!(opened(tables), expected);
    }
}
