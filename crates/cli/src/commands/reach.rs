//! Which server a command talks to.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use sandcove_client::Client;
use sandcove_wire::secret::Secret;

use super::serve::not_running;
use crate::data_dir::ServerFile;

/// Options of commands that need a server which runs.
#[derive(Debug, Args)]
pub struct Reach {
    /// use the server at this address instead of the one of the data directory
    #[arg(long, requires = "api_key", global = true)]
    url: Option<String>,
    /// a key for that server
    #[arg(long, env = "E2B_API_KEY", hide_env_values = true, global = true)]
    api_key: Option<String>,
}

impl Reach {
    /// A client of that server; for the one of the data directory it is known that it answers.
    pub async fn client(&self, data_dir: &Path) -> Result<Client> {
        match (&self.url, &self.api_key) {
            (Some(url), Some(key)) => Ok(Client::new(url, &Secret::new(key))?),
            _ => match ServerFile::reachable(data_dir).await? {
                Some((_, client)) => Ok(client),
                None => bail!(not_running(ServerFile::read(data_dir)?.as_ref())),
            },
        }
    }
}
