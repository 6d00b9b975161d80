//! Sandboxes for the rows of a run: a fresh one for each piece of code, no more at a time than rows.

use std::sync::{Arc, OnceLock};

use sandcove_client::{Client, NewSandbox, Sandbox};
use sandcove_wire::secret::Secret;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::Object;

/// Seconds after which a sandbox ends even if whoever made it is gone.
const LIFE: u32 = 300;

/// Sandboxes shared by the rows of a run; the server is looked for on first use.
#[derive(Debug)]
pub struct Sandboxes {
    env: Object,
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
        Self { env, client: OnceLock::new(), slots: Arc::new(Semaphore::new(concurrency.max(1))) }
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
            .map_err(|error| format!("no sandbox to run code in: {}", all(&error)))?;
        Ok(Taken { sandbox, client, _slot: slot })
    }

    fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let variable = |name: &str| match self.env.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            _ => std::env::var(name).ok().filter(|text| !text.is_empty()),
        };
        let missing = |name| {
            format!(
                "`{name}` is not set: code runs in sandboxes of the server it names; `sandcove up` prints it"
            )
        };
        let url = variable("E2B_API_URL").ok_or_else(|| missing("E2B_API_URL"))?;
        let key = variable("E2B_API_KEY").ok_or_else(|| missing("E2B_API_KEY"))?;
        let client = Client::new(&url, &Secret::new(key)).map_err(|error| error.to_string())?;
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
