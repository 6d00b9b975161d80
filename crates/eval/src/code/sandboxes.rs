//! Sandboxes for the rows of a run: a fresh one for each piece of code, no more at a time than rows.

use std::sync::{Arc, OnceLock};

use sandcove_client::{Client, NewSandbox, Sandbox};
use sandcove_wire::secret::Secret;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::Object;

/// Seconds after which a sandbox ends even if whoever made it is gone.
const LIFE: u32 = 300;

/// The server that code runs on when the suite's variables name none.
#[derive(Debug, Clone)]
pub struct Server {
    /// `http://host:port`
    pub url: String,
    /// A key of one of its teams.
    pub key: Secret,
    /// Whether the command line names it, so that variables do not count.
    pub is_named: bool,
}

/// Where [`Server`] comes from: why there is none otherwise.
pub type Fallback = Result<Server, String>;

/// Sandboxes shared by the rows of a run; the server is looked for on first use.
#[derive(Debug)]
pub struct Sandboxes {
    env: Object,
    server: Fallback,
    client: OnceLock<Client>,
    slots: Arc<Semaphore>,
}

/// What code gets to run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) template: String,
    pub(super) network: bool,
}

/// A sandbox of one row.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) sandbox: Sandbox,
    client: Client,
    _slot: OwnedSemaphorePermit,
}

impl Sandboxes {
    /// At most `concurrency` sandboxes, of the server that `env` or the process's variables name.
    pub fn new(env: Object, concurrency: usize) -> Self {
        let server = Err("E2B_API_URL and E2B_API_KEY are not set".to_owned());
        Self { env, server, client: OnceLock::new(), slots: Arc::new(Semaphore::new(concurrency.max(1))) }
    }

    /// As above, with a server for when variables name none.
    #[must_use]
    pub fn with_server(mut self, server: Fallback) -> Self {
        self.server = server;
        self
    }

    /// A new sandbox. It has to be given back with [`Taken::end`].
    pub(super) async fn take(&self, place: &Place) -> Result<Taken, String> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|error| error.to_string())?;
        let client = self.client()?;
        let new = NewSandbox {
            template: place.template.clone(),
            timeout: LIFE,
            allow_internet_access: place.network,
            ..NewSandbox::default()
        };
        let sandbox = client
            .create(&new)
            .await
            .map_err(|error| match error.status() {
                Some(401) => format!(
                    "no sandbox to run code in: the server at {} does not accept the API key; `sandcove keys create` on its host makes one",
                    client.url()
                ),
                _ => format!("no sandbox to run code in: {}", all(&error)),
            })?;
        Ok(Taken { sandbox, client, _slot: slot })
    }

    fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let is_named = self.server.as_ref().is_ok_and(|server| server.is_named);
        let variable = |name: &str| match self.env.get(name) {
            _ if is_named => None,
            Some(Value::String(text)) => Some(text.clone()),
            _ => std::env::var(name).ok().filter(|text| !text.is_empty()),
        };
        let (url, key) = match (variable("E2B_API_URL"), variable("E2B_API_KEY"), &self.server) {
            (Some(url), Some(key), _) => (url, Secret::new(key)),
            // The key of this machine's server is for that server only.
            (Some(url), None, Ok(server)) if url.trim_end_matches('/') == server.url => {
                (url, server.key.clone())
            }
            (Some(url), None, _) => return Err(format!("no API key for {url}: set E2B_API_KEY")),
            (None, Some(key), Ok(server)) => (server.url.clone(), Secret::new(key)),
            (None, None, Ok(server)) => (server.url.clone(), server.key.clone()),
            (None, _, Err(reason)) => return Err(format!("no server to run code on: {reason}")),
        };
        let client = Client::new(&url, &key).map_err(|error| error.to_string())?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

impl Taken {
    /// Ends the sandbox, whatever runs in it. One that cannot be ended now ends by itself.
    pub(super) async fn end(self) {
        let _ = self.client.kill(self.sandbox.id()).await;
    }
}

/// An error with its causes.
pub(super) fn all(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
