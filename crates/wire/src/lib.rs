//! Everything that crosses a wire, and nothing that moves it: ids and their grammar, REST bodies, envd messages,
//! interpreter events, and what the host hands the agent at boot. No I/O, no async, no clock.
#![forbid(unsafe_code)]

pub mod api;
pub mod boot;
pub mod control;
pub mod envd;
pub mod id;
pub mod interpreter;
pub mod secret;
pub mod signature;
