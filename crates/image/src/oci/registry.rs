//! One repository of a registry, or of its mirrors: manifests and blobs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, RANGE};
use http::{HeaderMap, HeaderValue, Response};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::sleep;
use url::Url;

use super::auth::{self, AuthError, Login};
use super::digest::Digest;
use super::ecr::{self, AccessKey};
use super::error::{Error, Result};
use super::manifest;
use super::network::{Network, NetworkError, read};
use super::reference::Reference;
use super::settings::{Credentials, Settings};

/// Maximum size of the body of an error, bytes.
const MAX_ERROR: u64 = 64 << 10;
/// Delays after failed requests that may succeed later; the last one is final.
const RETRIES: [Option<Duration>; 3] = [Some(Duration::from_millis(250)), Some(Duration::from_secs(1)), None];

/// A repository, with the servers that have it: mirrors first, then the registry itself.
#[derive(Clone)]
pub(super) struct Registry {
    network: Network,
    origins: Arc<Vec<Origin>>,
    repository: String,
    /// Reference as given, for errors.
    image: String,
}

/// A server, and what it has authorized.
struct Origin {
    base: Url,
    login: Option<Login>,
    authorization: Mutex<Option<HeaderValue>>,
}

/// The errors of a registry, by the distribution specification.
#[derive(Deserialize)]
struct Errors {
    errors: Vec<Coded>,
}

#[derive(Deserialize)]
struct Coded {
    #[serde(default)]
    code: String,
}

/// A failed request for one resource.
pub(super) enum Failure {
    /// The request may succeed later or at another server.
    Passing(Error),
    /// The request is pointless.
    Final(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        let (Self::Passing(error) | Self::Final(error)) = self;
        error
    }
}

impl Registry {
    /// Prepares requests to the registry of `reference`. Nothing is sent but what credentials of Amazon need.
    pub(super) async fn open(
        image: &str,
        reference: &Reference,
        credentials: &Credentials,
        settings: &Settings,
    ) -> Result<Self> {
        let network = Network::new(settings);
        let unreachable = |reason| Error::Unreachable { image: image.to_owned(), reason };
        let login = login(image, reference, credentials, &network).await?;
        let mut origins = Vec::new();
        for mirror in settings.mirrors.iter().filter(|mirror| mirror.registry == reference.registry) {
            let base = Url::parse(&format!("{}/", mirror.url.trim_end_matches('/')))
                .map_err(|error| unreachable(format!("the mirror '{}' is invalid: {error}", mirror.url)))?;
            origins.push(Origin { base, login: None, authorization: Mutex::default() });
        }
        let base = network.base(reference.host()).map_err(unreachable)?;
        origins.push(Origin { base, login, authorization: Mutex::default() });
        Ok(Self {
            network,
            origins: Arc::new(origins),
            repository: reference.repository.clone(),
            image: image.to_owned(),
        })
    }

    /// Gets the manifest or index with this tag or digest.
    pub(super) async fn manifest(&self, version: &str) -> Result<Bytes> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(manifest::ACCEPT))]);
        self.small(&format!("manifests/{version}"), &headers, manifest::MAX_MANIFEST).await
    }

    /// Gets a blob of at most `limit` bytes.
    pub(super) async fn small_blob(&self, digest: &Digest, limit: u64) -> Result<Bytes> {
        self.small(&format!("blobs/{digest}"), &HeaderMap::new(), limit).await
    }

    async fn small(&self, path: &str, headers: &HeaderMap, limit: u64) -> Result<Bytes> {
        let mut last = None;
        for origin in 0..self.origins.len() {
            for delay in RETRIES {
                let failure = match self.request(origin, path, headers).await {
                    Ok(response) => match read(response, limit).await {
                        Ok(body) => return Ok(body),
                        Err(error) => Failure::Passing(self.broken(error.to_string())),
                    },
                    Err(failure) => failure,
                };
                let is_final = matches!(failure, Failure::Final(_));
                last = Some(failure.into_error());
                let Some(delay) = delay.filter(|_| !is_final) else { break };
                sleep(delay).await;
            }
        }
        // The registry is the last server; its error is the one that matters.
        Err(last.unwrap_or(Error::Cancelled))
    }

    /// Number of servers that may have a blob.
    pub(super) fn servers(&self) -> usize {
        self.origins.len()
    }

    /// Requests a blob from the byte `start` on, from the server with this number.
    pub(super) async fn blob(
        &self,
        server: usize,
        digest: &Digest,
        start: u64,
    ) -> std::result::Result<Response<Incoming>, Failure> {
        let mut headers = HeaderMap::new();
        if start > 0
            && let Ok(range) = HeaderValue::try_from(format!("bytes={start}-"))
        {
            headers.insert(RANGE, range);
        }
        self.request(server, &format!("blobs/{digest}"), &headers).await
    }

    /// Error for a request that failed for this reason.
    pub(super) fn broken(&self, reason: String) -> Error {
        Error::Unreachable { image: self.image.clone(), reason }
    }

    /// Error for a file of the host that could not be written.
    pub(super) fn disk(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full { image: self.image.clone() }
            }
            _ => Error::host("write", Path::new("a downloaded layer"))(error),
        }
    }

    /// Error for something wrong in the image.
    pub(super) fn invalid(&self, reason: String) -> Error {
        Error::Invalid { image: self.image.clone(), reason }
    }

    async fn request(
        &self,
        server: usize,
        path: &str,
        headers: &HeaderMap,
    ) -> std::result::Result<Response<Incoming>, Failure> {
        let Some(origin) = self.origins.get(server) else { return Err(Failure::Final(Error::Cancelled)) };
        let url = origin
            .base
            .join(&format!("v2/{}/{path}", self.repository))
            .map_err(|error| Failure::Final(self.broken(error.to_string())))?;
        let used = origin.authorization.lock().await.clone();
        let mut response = self
            .network
            .get(&url, headers, used.as_ref())
            .await
            .map_err(|error| self.network_failure(error))?;
        if response.status().as_u16() == 401 {
            let authorization = self.authorize(origin, used, response.headers()).await?;
            response = self
                .network
                .get(&url, headers, Some(&authorization))
                .await
                .map_err(|error| self.network_failure(error))?;
        }
        match response.status().as_u16() {
            200 | 206 => Ok(response),
            _ => Err(self.refusal(response).await),
        }
    }

    /// Gets an authorization other than `used`; that of another task if there is one.
    async fn authorize(
        &self,
        origin: &Origin,
        used: Option<HeaderValue>,
        challenge: &HeaderMap,
    ) -> std::result::Result<HeaderValue, Failure> {
        let mut held = origin.authorization.lock().await;
        if let Some(newer) = held.as_ref().filter(|held| Some(*held) != used.as_ref()) {
            return Ok(newer.clone());
        }
        match auth::answer(&self.network, challenge, &self.repository, origin.login.as_ref()).await {
            Ok(header) => Ok(held.insert(header).clone()),
            Err(AuthError::Denied) => Err(Failure::Final(Error::Denied(self.image.clone()))),
            Err(AuthError::Network(error)) => Err(self.network_failure(error)),
        }
    }

    fn network_failure(&self, error: NetworkError) -> Failure {
        let is_refused = matches!(error, NetworkError::Refused(_));
        let error = self.broken(error.text());
        if is_refused { Failure::Final(error) } else { Failure::Passing(error) }
    }

    async fn refusal(&self, response: Response<Incoming>) -> Failure {
        let status = response.status().as_u16();
        let body = read(response, MAX_ERROR).await.unwrap_or_default();
        let codes: Vec<String> = serde_json::from_slice::<Errors>(&body)
            .map(|errors| errors.errors.into_iter().map(|error| error.code).collect())
            .unwrap_or_default();
        let has = |code: &str| codes.iter().any(|found| found == code);
        let image = self.image.clone();
        match status {
            401 | 403 => Failure::Final(Error::Denied(image)),
            _ if has("DENIED") || has("UNAUTHORIZED") => Failure::Final(Error::Denied(image)),
            404 if has("NAME_UNKNOWN") => Failure::Final(Error::UnknownRepository(self.repository.clone())),
            404 => Failure::Final(Error::UnknownTag(image)),
            408 | 429 | 500..=599 => Failure::Passing(Error::Status { image, status }),
            _ => Failure::Final(Error::Status { image, status }),
        }
    }
}

async fn login(
    image: &str,
    reference: &Reference,
    credentials: &Credentials,
    network: &Network,
) -> Result<Option<Login>> {
    match credentials {
        Credentials::Anonymous => Ok(None),
        Credentials::Basic { username, password } => {
            Ok(Some(Login { username: username.clone(), password: password.clone() }))
        }
        Credentials::Gcr { service_account_json } => {
            Ok(Some(Login { username: "_json_key".to_owned(), password: service_account_json.clone() }))
        }
        Credentials::Ecr { access_key_id, secret_access_key, region } => {
            if !ecr::is_region(region) {
                return Err(Error::Credentials(format!(
                    "'{region}' is not a region of AWS; use one like us-east-1"
                )));
            }
            // A password for all registries of the account is for Amazon only.
            let host = reference.registry.as_str();
            let is_amazon = [".amazonaws.com", ".amazonaws.com.cn"].iter().any(|end| host.ends_with(end));
            if !is_amazon && network.settings().ecr_endpoint.is_none() {
                return Err(Error::Credentials(format!(
                    "the credentials are for AWS, but '{host}' is not a registry of AWS"
                )));
            }
            let key = AccessKey { id: access_key_id, secret: secret_access_key, region };
            match ecr::login(network, &key).await {
                Ok(login) => Ok(Some(login)),
                Err(AuthError::Denied) => Err(Error::Denied(image.to_owned())),
                Err(AuthError::Network(error)) => {
                    Err(Error::Unreachable { image: image.to_owned(), reason: error.text() })
                }
            }
        }
    }
}
