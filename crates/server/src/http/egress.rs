//! The egress log of a sandbox: its last connections through the egress proxy. It is this server's own call.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use sandcove_isolate::Connection;
use sandcove_wire::api::observe::{EgressConnection, EgressLog, EgressRule};

use super::auth::Reader;
use super::body;
use super::params::Sandbox;
use crate::state::App;
use crate::{Error, Result};

pub(super) async fn log(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
) -> Result<Response> {
    let view = app.sandboxes().view(&team, &id)?;
    let connections = match &view.live {
        Some(live) => live.handle.0.egress_log().await.map_err(|source| Error::Backend {
            action: "read the egress log of",
            id: id.clone(),
            source,
        })?,
        None => Vec::new(),
    };
    let log = EgressLog { connections: connections.into_iter().map(shown).collect() };
    Ok(body::json(StatusCode::OK, &log))
}

fn shown(connection: Connection) -> EgressConnection {
    let time = |millis: u64| {
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
    };
    EgressConnection {
        number: connection.number,
        began_at: time(connection.began_at),
        ended_at: connection.ended_at.map(time),
        host: connection.host,
        address: connection.address.to_string(),
        port: connection.port,
        allowed: connection.is_allowed,
        rule: connection.rule.map(|(list, entry)| EgressRule { list, entry }),
        proxied: connection.is_proxied,
        transformed: connection.gets_headers,
        error: connection.error,
        sent_bytes: connection.sent,
        received_bytes: connection.received,
    }
}
