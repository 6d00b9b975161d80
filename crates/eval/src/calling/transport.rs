//! HTTP calls of providers: one client, time limits, and new tries when a service is busy.

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::CallError;
use crate::model::Object;

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, with lowercase names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub text: String,
}

impl Reply {
    /// Meaning of the status, as in `Not Found`; empty for one of the service's own.
    pub fn status_text(&self) -> &'static str {
        let status = reqwest::StatusCode::from_u16(self.status).ok();
        status.and_then(|status| status.canonical_reason()).unwrap_or_default()
    }

    /// Whether a refusal is about an account without money or rights: asking again does not help.
    fn is_account_empty(&self) -> bool {
        let value: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let said = ["/error/code", "/error/type"].into_iter().filter_map(|at| value.pointer(at)?.as_str());
        said.into_iter().any(|code| EMPTY_ACCOUNT.contains(&code.to_lowercase().as_str()))
    }
}

/// A request to a service over HTTP.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// GET, POST, …
    pub method: String,
    /// The address.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<String>,
    /// A body that is not text, in place of `body`.
    pub form: Option<Bytes>,
    /// The client, where the one of all providers will not do.
    pub client: Option<reqwest::Client>,
    /// Attempts after the first, where a configuration says how many.
    pub max_retries: Option<u32>,
}

impl Request {
    /// A POST of JSON.
    pub fn json(url: String, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let body = Some(body.to_string());
        Self { method: "POST".to_owned(), url, headers, body, ..Self::default() }
    }

    /// Sets a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// Codes of refusals of accounts without money or rights, which come with the status of a busy service.
const EMPTY_ACCOUNT: [&str; 6] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "access_terminated",
    "quota_exceeded",
    "credit_balance_exhausted",
];
/// Attempts after the first.
const MAX_RETRIES: u32 = 4;

tokio::task_local! {
    /// Whether a service that cannot be reached fails a call at once.
    static IS_EXPECTED: bool;
}

/// Runs calls to services that are expected to be there: what cannot be reached is not tried again, because everything else waits for it.
/// Services that are busy or break off, and those whose configuration has a number of tries, are waited for as ever.
pub async fn expecting_service<T>(calls: impl Future<Output = T>) -> T {
    IS_EXPECTED.scope(true, calls).await
}

/// Sends a request, and sends it again, with growing pauses, when the service is busy or cannot be reached.
///
/// # Errors
/// [`CallError`] when the request gets no answer. An answer with a bad status is no error.
pub async fn send(request: &Request) -> Result<Reply, CallError> {
    send_within(request, time_limit()).await
}

/// The time limit of each try: `REQUEST_TIMEOUT_MS`, or five minutes.
pub fn time_limit() -> Duration {
    Duration::from_millis(number("REQUEST_TIMEOUT_MS").unwrap_or(300_000))
}

/// As [`send`], with a time limit for each try.
///
/// # Errors
/// As [`send`].
pub async fn send_within(request: &Request, limit: Duration) -> Result<Reply, CallError> {
    let client = match &request.client {
        Some(own) => own,
        None => client()?,
    };
    let max_retries = request.max_retries.unwrap_or(MAX_RETRIES);
    let pause = number("PROMPTFOO_REQUEST_BACKOFF_MS").unwrap_or(5000);
    let retry_5xx = crate::reading::env::is_on("PROMPTFOO_RETRY_5XX");
    let is_expected = IS_EXPECTED.try_with(|expected| *expected).unwrap_or(false);
    let mut tries = 0;
    loop {
        let result = once(client, request, limit).await;
        let busy = match &result {
            Ok(reply) => match reply.status {
                429 => !reply.is_account_empty(),
                status => retry_5xx && status >= 500,
            },
            Err(failure) => {
                failure.again && !(failure.is_unreached && is_expected && request.max_retries.is_none())
            }
        };
        if !busy || tries >= max_retries {
            return result.map_err(|failure| failure.error);
        }
        let asked = result.ok().and_then(|reply| wait_of(&reply));
        let jitter = rand::random_range(0.8..1.2);
        let wait =
            asked.unwrap_or_else(|| Duration::from_millis(pause.saturating_mul(2u64.saturating_pow(tries))));
        tokio::time::sleep(wait.mul_f64(jitter).min(Duration::from_secs(60))).await;
        tries += 1;
    }
}

/// The reply of a model's service.
#[derive(Debug)]
pub struct ServiceReply {
    /// The status.
    pub status: u16,
    /// The JSON; null if the reply is none.
    pub value: Value,
    /// Milliseconds that the service took.
    pub took_ms: f64,
    text: String,
}

impl ServiceReply {
    /// Whether the service did what it was asked.
    pub fn is_good(&self) -> bool {
        self.status < 400 && !self.value.is_null()
    }

    /// Returns the error that the service answers with.
    pub fn into_error(self) -> CallError {
        let message = self.value.pointer("/error/message").and_then(Value::as_str).unwrap_or(&self.text);
        CallError::Service { status: self.status, message: message.to_owned() }
    }
}

/// Asks a model: sends a request, with the headers that its configuration adds, and reads the JSON that comes back.
///
/// # Errors
/// [`CallError`] when the request gets no answer. An answer with a bad status is no error.
pub async fn ask(mut request: Request, config: &Object) -> Result<ServiceReply, CallError> {
    for (name, value) in config.get("headers").and_then(Value::as_object).into_iter().flatten() {
        request = request.header(name, crate::template::value::to_text(value));
    }
    let started = Instant::now();
    let Reply { status, text, .. } = send(&request).await?;
    let took_ms = started.elapsed().as_millis() as f64;
    Ok(ServiceReply { status, value: serde_json::from_str(&text).unwrap_or(Value::Null), took_ms, text })
}

/// An attempt without an answer.
struct FailedAttempt {
    error: CallError,
    /// Whether another one may get an answer.
    again: bool,
    /// Whether there was no connection.
    is_unreached: bool,
}

async fn once(client: &reqwest::Client, request: &Request, limit: Duration) -> Result<Reply, FailedAttempt> {
    let method = reqwest::Method::from_bytes(request.method.as_bytes()).map_err(|_| FailedAttempt {
        error: CallError::UnknownMethod(request.method.clone()),
        again: false,
        is_unreached: false,
    })?;
    let mut builder = client.request(method, &request.url).timeout(limit);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    if let Some(form) = &request.form {
        builder = builder.body(form.clone());
    } else if let Some(body) = &request.body {
        builder = builder.body(body.clone());
    }
    let failed = |error: reqwest::Error| {
        let address = request.url.split('?').next().unwrap_or_default().to_owned();
        FailedAttempt {
            error: CallError::NoAnswer { address, reason: reason(&error) },
            again: true,
            is_unreached: false,
        }
    };
    let response = builder.send().await.map_err(|error| FailedAttempt {
        again: error.is_connect() && !is_of_tls(&error),
        is_unreached: error.is_connect(),
        ..failed(error)
    })?;
    let status = response.status().as_u16();
    let headers = response.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let text = response.text().await.map_err(failed)?;
    Ok(Reply { status, headers, text })
}

/// Whether a service was reached that does not speak TLS, or whose certificate is not trusted: another try would not help.
fn is_of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    // What an error of I/O holds is not its source.
    let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>()
        || held.is_some_and(|held| is_of_tls(held))
        || error.source().is_some_and(is_of_tls)
}

/// Returns what went wrong, down to its cause, without the address, which may hold a key.
pub fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match error.is_timeout() {
        true => "no answer in time".to_owned(),
        false if error.source().is_none() => "no answer".to_owned(),
        false => cause.to_string(),
    }
}

fn wait_of(reply: &Reply) -> Option<Duration> {
    let header =
        |wanted: &str| reply.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let ms = header("retry-after-ms").and_then(|value| value.parse::<f64>().ok()).map(|ms| ms / 1000.0);
    let seconds = ms.or_else(|| header("retry-after").and_then(|value| value.parse::<f64>().ok()))?;
    Some(Duration::from_secs_f64(seconds.clamp(0.0, 60.0)))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The one client of the process; made on first use, so that a run without HTTP pays nothing.
///
/// # Errors
/// [`CallError::Setup`] when the host does not allow it.
pub fn client() -> Result<&'static reqwest::Client, CallError> {
    static CLIENT: OnceLock<Result<reqwest::Client, CallError>> = OnceLock::new();
    let made = CLIENT.get_or_init(|| builder().build().map_err(|error| CallError::Setup(error.to_string())));
    made.as_ref().map_err(Clone::clone)
}

/// Begins a client with settings of its own.
pub fn builder() -> reqwest::ClientBuilder {
    // An embedding program may have chosen a provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_service_without_tls_is_asked_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                // What was sent is read, so that closing does not reset the connection.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            }
        });
        let error = send(&Request::json(url, &Value::Null)).await.unwrap_err();
        assert!(matches!(error, CallError::NoAnswer { .. }), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
