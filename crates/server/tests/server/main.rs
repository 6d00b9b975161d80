//! The server over real HTTP, with the in-memory backend behind it.

mod auth;
mod create;
mod idempotency;
mod lifecycle;
mod lists;
mod observe;
mod proxy;
mod restart;
mod support;
mod templates;
mod wake;
