//! The server over real HTTP, with the in-memory backend behind it.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

mod auth;
mod create;
mod idempotency;
mod keys;
mod layers;
mod lifecycle;
mod lists;
mod observe;
mod proxy;
mod restart;
mod snapshots;
mod support;
mod templates;
mod wake;
