//! The real backend: Linux namespaces.

use std::collections::HashSet;
use std::path::PathBuf;

use sandcove_wire::id::SandboxId;
use tokio::net::TcpStream;

use crate::backend::SweepReport;
use crate::{ExitReason, NetworkPolicy, Record, Result, SandboxSpec, Usage};

/// Not constructible yet.
#[derive(Clone)]
pub enum Namespaces {}

/// Not constructible yet.
#[derive(Clone)]
pub enum Handle {}

impl Namespaces {
    pub(crate) async fn create(&self, _: SandboxSpec) -> Result<Handle> {
        match *self {}
    }

    pub(crate) async fn adopt(&self, _: &SandboxId) -> Option<Handle> {
        match *self {}
    }

    pub(crate) async fn sweep(&self, _: &HashSet<SandboxId>) -> SweepReport {
        match *self {}
    }

    pub(crate) fn layer_dir(&self) -> PathBuf {
        match *self {}
    }
}

impl Handle {
    pub(crate) fn record(&self) -> &Record {
        match *self {}
    }

    pub(crate) async fn connect(&self, _: u16) -> std::io::Result<TcpStream> {
        match *self {}
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        match *self {}
    }

    pub(crate) async fn wait(&self) -> ExitReason {
        match *self {}
    }

    pub(crate) async fn usage(&self) -> Result<Usage> {
        match *self {}
    }

    pub(crate) async fn set_network(&self, _: NetworkPolicy) -> Result<()> {
        match *self {}
    }

    pub(crate) async fn pause(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) async fn resume(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) async fn destroy(self) -> Result<()> {
        match self {}
    }
}
