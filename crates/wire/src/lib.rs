//! Everything that crosses a wire, and nothing that moves it: ids and their grammar, REST bodies, envd messages,
//! interpreter events, what the host hands the agent at boot, and the steps of template builds. No I/O, no async, no clock.
#![forbid(unsafe_code)]

pub mod api;
pub mod boot;
pub mod control;
pub mod envd;
pub mod id;
pub mod interpreter;
pub mod secret;
pub mod signature;
pub mod step;
