//! Sandboxes for the rows of a run: a new one for each piece of code, at most as many at a time as rows. They are ended beside the rows that
//! follow, at most as many at a time again.

use std::sync::{Arc, OnceLock};

use sandcove_client::{Client, ClientBuilder, NewSandbox, Sandbox};
use sandcove_wire::secret::Secret;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::reading::Env;

/// Seconds after which a sandbox ends even if its run has crashed.
const TIMEOUT: u32 = 300;

/// The server that code runs on when the suite's variables name none.
#[derive(Debug, Clone)]
pub struct Server {
    /// URL of the server: `http://host:port`.
    pub url: String,
    /// A key of one of its teams.
    pub key: Secret,
    /// Whether the command line names it, so that variables do not count.
    pub is_named: bool,
}

/// The server to use where variables name none, or the reason why there is none: a text for the user, as only the program that looks
/// for a server knows where it has looked and what there is to do.
pub type Fallback = Result<Server, String>;

/// Reason why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum SandboxError {
    /// Neither variables nor this machine name a server.
    #[error("no server to run code on: {0}")]
    NoServer(String),
    /// Variables name a server, but no key for it.
    #[error("no API key for {0}: set E2B_API_KEY")]
    NoKey(String),
    /// The server does not accept the key.
    #[error(
        "no sandbox to run code in: the server at {0} does not accept the API key; `sandcove keys create` on its host makes one"
    )]
    KeyRefused(String),
    /// The server could not make a sandbox.
    #[error("no sandbox to run code in: {0}")]
    Refused(String),
    /// The address or the key is malformed.
    #[error("{0}")]
    Client(String),
}

/// Sandboxes shared by the rows of a run; the server is looked up on first use.
#[derive(Debug)]
pub struct Sandboxes {
    env: Env,
    server: Fallback,
    client: OnceLock<Client>,
    slots: Arc<Semaphore>,
    endings: Endings,
}

/// The ends of sandboxes, which rows do not wait for unless there are too many.
#[derive(Debug, Clone)]
struct Endings {
    tasks: TaskTracker,
    slots: Arc<Semaphore>,
}

/// The sandbox that a piece of code needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) template: String,
    pub(crate) network: bool,
}

/// A sandbox of one row.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) sandbox: Sandbox,
    client: Client,
    endings: Endings,
    /// The place of the row, taken until the sandbox is given back.
    slot: Option<OwnedSemaphorePermit>,
}

impl Sandboxes {
    /// A pool of at most `concurrency` sandboxes, of the server that `env` or the process's variables name.
    pub fn new(env: Env, concurrency: usize) -> Self {
        let server = Err("E2B_API_URL and E2B_API_KEY are not set".to_owned());
        let slots = || Arc::new(Semaphore::new(concurrency.max(1)));
        let endings = Endings { tasks: TaskTracker::new(), slots: slots() };
        Self { env, server, client: OnceLock::new(), slots: slots(), endings }
    }

    /// Sets the server to use where variables name none.
    #[must_use]
    pub fn with_server(mut self, server: Fallback) -> Self {
        self.server = server;
        self
    }

    /// Checks that there is a server that answers and accepts the key; returns its URL.
    ///
    /// # Errors
    /// An error if there is no server.
    pub async fn reach(&self) -> Result<String, SandboxError> {
        let client = self.client()?;
        client.ping().await.map_err(|error| match error.status() {
            Some(401) => SandboxError::KeyRefused(client.url().to_string()),
            _ => SandboxError::Refused(chain(&error)),
        })?;
        Ok(client.url().to_owned())
    }

    /// Creates a sandbox, when fewer than the most are in use. It must be ended with [`Taken::end`].
    pub(crate) async fn take(&self, environment: &Environment) -> Result<Taken, SandboxError> {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(|error| SandboxError::Client(error.to_string()))?;
        Ok(Taken { slot: Some(slot), ..self.take_beside(environment).await? })
    }

    /// Creates a sandbox for a row that has one already: it does not wait, so that rows never wait for each other.
    pub(crate) async fn take_beside(&self, environment: &Environment) -> Result<Taken, SandboxError> {
        let client = self.client()?;
        let new = NewSandbox {
            template: environment.template.clone(),
            timeout: TIMEOUT,
            allow_internet_access: environment.network,
            ..NewSandbox::default()
        };
        let sandbox = client.create(&new).await.map_err(|error| match error.status() {
            Some(401) => SandboxError::KeyRefused(client.url().to_string()),
            _ => SandboxError::Refused(chain(&error)),
        })?;
        Ok(Taken { sandbox, client, endings: self.endings.clone(), slot: None })
    }

    /// Waits for the ends of all sandboxes that rows have given back.
    pub(crate) async fn ended(&self) {
        self.endings.tasks.close();
        self.endings.tasks.wait().await;
    }

    fn client(&self) -> Result<Client, SandboxError> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let (url, key) = self.address()?;
        // The address of sandboxes belongs to that of the API.
        let shared = self.variable("E2B_API_URL").and_then(|_| self.variable("E2B_SANDBOX_URL"));
        // A sandbox may take longer to start than requests usually take.
        let settings = ClientBuilder::new(key).server(&url).retries(0).request_timeout(None);
        let settings = match shared {
            Some(shared) => settings.sandbox_url(&shared),
            None => settings,
        };
        let client = settings.build().map_err(|error| SandboxError::Client(error.to_string()))?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// Returns the value of a variable of the suite, or else of the environment, unless the command line names the server. An empty one of the
    /// environment counts as unset.
    fn variable(&self, name: &str) -> Option<String> {
        let is_named = self.server.as_ref().is_ok_and(|server| server.is_named);
        match self.env.own().get(name) {
            _ if is_named => None,
            Some(Value::String(text)) => Some(text.clone()),
            _ => std::env::var(name).ok().filter(|text| !text.is_empty()),
        }
    }

    /// Returns the URL of the server, and the key for it.
    pub(crate) fn address(&self) -> Result<(String, Secret), SandboxError> {
        Ok(match (self.variable("E2B_API_URL"), self.variable("E2B_API_KEY"), &self.server) {
            (Some(url), Some(key), _) => (url, Secret::new(key)),
            // The key of this machine's server is for that server only.
            (Some(url), None, Ok(server)) if url.trim_end_matches('/') == server.url => {
                (url, server.key.clone())
            }
            (Some(url), None, _) => return Err(SandboxError::NoKey(url)),
            (None, Some(key), Ok(server)) => (server.url.clone(), Secret::new(key)),
            (None, None, Ok(server)) => (server.url.clone(), server.key.clone()),
            (None, _, Err(reason)) => return Err(SandboxError::NoServer(reason.clone())),
        })
    }
}

impl Taken {
    /// Has the sandbox ended, whatever runs in it; [`Sandboxes::ended`] waits for that. One that cannot be ended now reaches its timeout.
    pub(crate) async fn end(mut self) {
        drop(self.slot.take());
        let Endings { tasks, slots } = self.endings.clone();
        // The semaphore is never closed.
        let slot = slots.acquire_owned().await;
        tasks.spawn(async move {
            let _ = self.finish().await;
            drop(slot);
        });
    }

    /// Ends the sandbox.
    ///
    /// # Errors
    /// An error if the server does not end the sandbox.
    pub(crate) async fn finish(self) -> sandcove_client::Result<()> {
        self.client.kill(self.sandbox.id()).await.map(drop)
    }

    /// Returns what the server says about the sandbox.
    ///
    /// # Errors
    /// An error if the server does not answer.
    pub(crate) async fn info(&self) -> sandcove_client::Result<Value> {
        self.client.info(self.sandbox.id()).await
    }
}

/// Returns the text of an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
