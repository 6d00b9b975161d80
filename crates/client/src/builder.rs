//! Settings of a client: where the API and the sandboxes are, and how patient it is (contract: control-plane, section 15.1).

use std::time::Duration;

use sandcove_wire::secret::Secret;

use crate::error::{Error, Result};
use crate::retry::RETRIES;
use crate::sandbox::Route;
use crate::server::Client;
use crate::transport::Transport;

/// Domain of the hosted service.
const HOSTED: &str = "e2b.app";
/// Limit on the time until an answer begins, as in the official SDKs.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings of a [`Client`] that is yet to be made.
///
/// ```
/// use sandcove_client::{ClientBuilder, Secret};
///
/// # fn main() -> sandcove_client::Result<()> {
/// // A server of one's own, for the API and the sandboxes.
/// let client = ClientBuilder::new(Secret::new("e2b_0123")).server("http://127.0.0.1:3000").build()?;
/// assert_eq!(client.url(), "http://127.0.0.1:3000");
/// // The hosted service, or any other with names of its own for sandboxes.
/// let client = ClientBuilder::new(Secret::new("e2b_0123")).domain("e2b.app").build()?;
/// assert_eq!(client.url(), "https://api.e2b.app");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    api_key: Option<Secret>,
    access_token: Option<Secret>,
    api_url: Option<String>,
    sandbox_url: Option<String>,
    domain: String,
    retries: u32,
    request_timeout: Option<Duration>,
}

impl ClientBuilder {
    /// Settings for the hosted service with an API key.
    pub fn new(api_key: Secret) -> Self {
        Self { api_key: Some(api_key), ..Self::hosted() }
    }

    /// Settings for the hosted service with the access token of a user, and without an API key. A server of Sandcove takes the token for all
    /// calls of the user's team.
    pub fn of_user(access_token: Secret) -> Self {
        Self { access_token: Some(access_token), ..Self::hosted() }
    }

    /// Settings for the hosted service without any credential.
    fn hosted() -> Self {
        Self {
            api_key: None,
            access_token: None,
            api_url: None,
            sandbox_url: None,
            domain: HOSTED.to_owned(),
            retries: RETRIES,
            request_timeout: Some(REQUEST_TIMEOUT),
        }
    }

    /// Settings from the variables that the official SDKs read: `E2B_API_KEY`, `E2B_ACCESS_TOKEN`, `E2B_API_URL`, `E2B_SANDBOX_URL` and
    /// `E2B_DOMAIN`. Empty ones count as unset.
    ///
    /// # Errors
    /// [`Error::Variable`] if neither `E2B_API_KEY` nor `E2B_ACCESS_TOKEN` is set.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let settings = match (variable("E2B_API_KEY"), variable("E2B_ACCESS_TOKEN")) {
            (Some(key), None) => Self::new(Secret::new(key)),
            (Some(key), Some(token)) => Self::new(Secret::new(key)).access_token(Secret::new(token)),
            (None, Some(token)) => Self::of_user(Secret::new(token)),
            (None, None) => return Err(Error::Variable("E2B_API_KEY")),
        };
        Ok(Self {
            api_url: variable("E2B_API_URL"),
            sandbox_url: variable("E2B_SANDBOX_URL"),
            domain: variable("E2B_DOMAIN").unwrap_or_else(|| HOSTED.to_owned()),
            ..settings
        })
    }

    /// Adds the access token of a user, which is sent as `Authorization: Bearer`. The calls for teams, keys and access tokens need it: an API
    /// key creates no keys (contract: control-plane, section 2).
    #[must_use]
    pub fn access_token(mut self, token: Secret) -> Self {
        self.access_token = Some(token);
        self
    }

    /// Sets one URL for the API and all sandboxes, as Sandcove's server has it.
    #[must_use]
    pub fn server(self, url: &str) -> Self {
        self.api_url(url).sandbox_url(url)
    }

    /// Sets the URL of the API, which is else `https://api.<domain>`.
    #[must_use]
    pub fn api_url(mut self, url: &str) -> Self {
        self.api_url = Some(url.to_owned());
        self
    }

    /// Sets one URL for the ports of all sandboxes, which have else names of their own: `https://<port>-<sandbox id>.<domain>`.
    #[must_use]
    pub fn sandbox_url(mut self, url: &str) -> Self {
        self.sandbox_url = Some(url.to_owned());
        self
    }

    /// Sets the domain of the API and of sandboxes that are not said to have another.
    #[must_use]
    pub fn domain(mut self, domain: &str) -> Self {
        self.domain = domain.to_owned();
        self
    }

    /// Sets how often a request to the API is sent again when its connection cannot be opened or the server is overloaded; 3 by default.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the limit on the time until the answer to a request to the API begins, retries included; 60 seconds by default.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Makes the client. It does not connect yet.
    ///
    /// # Errors
    /// [`Error::Address`] if a URL, the key or the access token is invalid.
    pub fn build(self) -> Result<Client> {
        let api = self.api_url.unwrap_or_else(|| format!("https://api.{}", self.domain));
        let route = match self.sandbox_url {
            Some(url) => {
                let url = url.trim_end_matches('/').to_owned();
                Transport::check(&url)?;
                Route::Shared(url)
            }
            None => Route::Names(self.domain),
        };
        // Names of sandboxes are always reached with TLS.
        let needs_tls = match &route {
            Route::Shared(url) => url.starts_with("https://"),
            Route::Names(_) | Route::Direct => true,
        };
        let transport = Transport::new(&api, needs_tls)?.patient(self.retries, self.request_timeout);
        let bearer = self.access_token.map(|token| format!("Bearer {}", token.expose()));
        let credentials = [
            self.api_key.as_ref().map(|key| ("x-api-key", key.expose())),
            bearer.as_deref().map(|bearer| ("authorization", bearer)),
        ];
        Client::over(transport, &credentials.into_iter().flatten().collect::<Vec<_>>(), route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(pairs: &[(&str, &str)]) -> Result<Client> {
        let find = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned());
        ClientBuilder::from_variables(find)?.build()
    }

    #[test]
    fn variables_are_read_as_the_sdks_read_them() {
        let key = ("E2B_API_KEY", "e2b_00");
        assert!(matches!(built(&[]), Err(Error::Variable("E2B_API_KEY"))));
        assert!(matches!(built(&[("E2B_API_KEY", "")]), Err(Error::Variable(_))));
        assert!(built(&[("E2B_ACCESS_TOKEN", "sk_e2b_00")]).is_ok());
        assert_eq!(built(&[key]).unwrap().url(), "https://api.e2b.app");
        assert_eq!(
            built(&[key, ("E2B_DOMAIN", "sbx.example.com")]).unwrap().url(),
            "https://api.sbx.example.com"
        );
        let own = [key, ("E2B_API_URL", "http://127.0.0.1:3000/"), ("E2B_DOMAIN", "x")];
        assert_eq!(built(&own).unwrap().url(), "http://127.0.0.1:3000");
        let bad = [key, ("E2B_API_URL", "http://127.0.0.1:3000"), ("E2B_SANDBOX_URL", "127.0.0.1:3000")];
        assert!(matches!(built(&bad), Err(Error::Address(url)) if url == "127.0.0.1:3000"));
    }
}
