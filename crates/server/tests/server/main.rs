//! The server over real HTTP, with the in-memory backend behind it.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

mod admin;
mod archives;
mod auth;
mod build_calls;
mod builds;
mod create;
mod dashboard;
mod edges;
mod events;
mod first_generation;
mod idempotency;
mod keys;
mod layers;
mod lifecycle;
mod lists;
mod mcp;
mod observe;
mod old_clients;
mod openapi;
mod parking;
mod proxy;
mod quotas;
mod request_id;
mod restart;
mod secrets;
mod snapshot_memory;
mod snapshots;
mod support;
mod tags;
mod templates;
mod tls;
mod uploads;
mod volumes;
mod wake;
mod walk;
