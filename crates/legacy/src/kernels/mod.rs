//! The kernel gateway of the first generation, port 8888: contexts of the code interpreter as kernels of a Jupyter server.

mod channels;
mod message;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use sandcove_wire::interpreter::{Context, CreateContext, ExecutionRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::answer::{self, Body, Refused, RequestBody};
use crate::guest::Guest;
use crate::socket;

/// Maximum size of a body, bytes.
const MAX_BODY: usize = 1 << 20;
/// Name of the only kind of kernel that clients ask for.
const PYTHON: &str = "python3";

/// Body of `POST /api/sessions`.
#[derive(Deserialize)]
struct NewSession {
    #[serde(default)]
    path: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    kernel: NamedKernel,
}

#[derive(Deserialize, Default)]
struct NamedKernel {
    name: Option<String>,
}

/// Body of `PATCH /api/sessions/{id}`.
#[derive(Deserialize)]
struct Moved {
    path: String,
}

/// Body of `POST /api/kernels`.
#[derive(Deserialize, Default)]
struct NewKernel {
    cwd: Option<String>,
    #[serde(rename = "kernelName", alias = "name")]
    name: Option<String>,
}

/// Answers a request to the gateway.
pub(crate) async fn serve<B>(
    mut request: Request<B>,
    guest: Guest,
    held: impl Send + 'static,
) -> Response<Body>
where
    B: RequestBody,
{
    let path = request.uri().path().to_owned();
    let Some(parts) = path.strip_prefix("/api/") else {
        return Refused::new(StatusCode::NOT_FOUND, "not found").json();
    };
    let parts: Vec<&str> = parts.trim_end_matches('/').split('/').collect();
    let done = match (request.method().as_str(), &parts[..]) {
        ("GET", ["kernels", id, "channels"]) => {
            return channels::open(&mut request, id, guest, held).await;
        }
        ("GET", ["kernels"]) => kernels(&guest).await,
        ("POST", ["kernels"]) => create_kernel(request, &guest).await,
        ("GET", ["kernels", id]) => find(&guest, id).await.map(|found| (StatusCode::OK, kernel(&found))),
        ("POST", ["kernels", id, "restart"]) => restart(&guest, id).await,
        ("DELETE", ["kernels" | "sessions", id]) => remove(&guest, id).await,
        ("POST", ["sessions"]) => create_session(request, &guest).await,
        ("PATCH", ["sessions", id]) => move_session(request, &guest, id).await,
        _ => Err(Refused::new(StatusCode::NOT_FOUND, "not found")),
    };
    match done {
        Ok((status, Value::Null)) => answer::empty(status),
        Ok((status, value)) => answer::json(status, &value),
        Err(refused) => refused.json(),
    }
}

type Outcome = Result<(StatusCode, Value), Refused>;

async fn kernels(guest: &Guest) -> Outcome {
    let contexts = contexts(guest).await?;
    // The interpreter always has one for JavaScript, which the gateway never had.
    let shown = contexts.iter().filter(|context| context.language != "javascript").map(kernel);
    Ok((StatusCode::OK, shown.collect()))
}

async fn create_kernel<B>(request: Request<B>, guest: &Guest) -> Outcome
where
    B: RequestBody,
{
    let wanted: NewKernel = body(request).await?;
    let made = create(guest, wanted.name, wanted.cwd).await?;
    Ok((StatusCode::CREATED, kernel(&made)))
}

/// Creates a kernel, and answers with a session that has its id.
async fn create_session<B>(request: Request<B>, guest: &Guest) -> Outcome
where
    B: RequestBody,
{
    let wanted: NewSession = body(request).await?;
    let made = create(guest, wanted.kernel.name, None).await?;
    let mut session = session(&made, wanted.path);
    session["name"] = wanted.name.into();
    Ok((StatusCode::CREATED, session))
}

/// Changes the directory of a session's kernel. One that does not exist changes nothing.
async fn move_session<B>(request: Request<B>, guest: &Guest, id: &str) -> Outcome
where
    B: RequestBody,
{
    let Moved { path } = body(request).await?;
    let context = find(guest, id).await?;
    if context.language == "python" && context.cwd != path {
        let Some(_permit) = guest.permit() else {
            return Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the sandbox has as many connections as it may",
            ));
        };
        // A text in JSON is one in Python too.
        let code = format!("__import__('os').chdir({})", Value::from(path.as_str()));
        let request = ExecutionRequest::new(code).context(context.id.as_str());
        let refused = |error| Refused::from(&error);
        let mut execution = guest.sandbox().start_code(&request).await.map_err(refused)?;
        // What the kernel says to this is of no use to anybody.
        while execution.line(0).await.map_err(refused)?.is_some() {}
    }
    Ok((StatusCode::OK, session(&context, path)))
}

async fn restart(guest: &Guest, id: &str) -> Outcome {
    let context = find(guest, id).await?;
    guest.sandbox().restart_context(&context.id).await.map_err(|error| Refused::from(&error))?;
    Ok((StatusCode::OK, kernel(&context)))
}

async fn remove(guest: &Guest, id: &str) -> Outcome {
    let context = find(guest, id).await?;
    guest.sandbox().remove_context(&context.id).await.map_err(|error| Refused::from(&error))?;
    Ok((StatusCode::NO_CONTENT, Value::Null))
}

async fn create(guest: &Guest, name: Option<String>, cwd: Option<String>) -> Result<Context, Refused> {
    let language = match name.as_deref() {
        None | Some("" | PYTHON) => "python".to_owned(),
        Some(other) => other.to_owned(),
    };
    let request = CreateContext { cwd: cwd.filter(|cwd| !cwd.is_empty()), language: Some(language) };
    guest.sandbox().create_context(&request).await.map_err(|error| Refused::from(&error))
}

async fn contexts(guest: &Guest) -> Result<Vec<Context>, Refused> {
    guest.sandbox().contexts().await.map_err(|error| Refused::from(&error))
}

/// The context that is a kernel.
async fn find(guest: &Guest, id: &str) -> Result<Context, Refused> {
    let found = contexts(guest).await?.into_iter().find(|context| context.id == id);
    let shown: String = id.chars().take(64).collect();
    found.ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, format!("Kernel does not exist: {shown}")))
}

/// Reads a body as JSON, whatever its type is said to be.
async fn body<B, T>(request: Request<B>) -> Result<T, Refused>
where
    B: RequestBody,
    T: DeserializeOwned,
{
    let bad = |text: String| Refused::new(StatusCode::BAD_REQUEST, text);
    let body = Limited::new(request.into_body(), MAX_BODY)
        .collect()
        .await
        .map_err(|error| bad(error.to_string()))?;
    let bytes = body.to_bytes();
    let json: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(json).map_err(|error| bad(format!("invalid body: {error}")))
}

fn kernel(context: &Context) -> Value {
    let name = if context.language == "python" { PYTHON } else { &context.language };
    json!({ "id": context.id, "name": name, "execution_state": "idle", "connections": 1 })
}

fn session(context: &Context, path: String) -> Value {
    json!({ "id": context.id, "path": path, "name": "", "type": "notebook", "kernel": kernel(context) })
}

/// Whether a request asks for the channels of a kernel.
fn wants_channels<B>(request: &Request<B>) -> bool {
    socket::is_wanted(request.headers())
}

/// Reads a message to a kernel, and forgets it.
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) fn read_cell(text: &str) {
    drop(message::read(text));
}
