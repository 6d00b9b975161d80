//! What every request goes through, in this order: cross-origin rules, the access token, the user in `Authorization`,
//! the choice of a route.

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use sandcove_wire::control::control_route;
use serde_json::json;
use tower::ServiceExt;

use super::cors;
use super::drained::Drained;
use crate::account::Account;
use crate::rpc::{self, headers};
use crate::state::{RequestContext, SharedState};

/// The only `User-Agent` that gets reduced answers.
const LEGACY_CLIENT: &str = "connect-python";

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    /// The port that clients reach.
    Public,
    /// The host's own socket. No token is asked for.
    Control,
}

/// The way of a request through the daemon.
pub struct Pipeline {
    state: SharedState,
    rpc: rpc::Router,
    plain: axum::Router,
    control: axum::Router,
}

impl Pipeline {
    /// A pipeline that ends in these routes; `control` is reachable through [`Entrance::Control`] only.
    pub fn new(state: SharedState, rpc: rpc::Router, plain: axum::Router, control: axum::Router) -> Self {
        let plain = plain.fallback(async || not_found());
        Self { state, rpc, control: control.merge(plain.clone()), plain }
    }

    /// Answers one request.
    pub async fn handle(&self, entrance: Entrance, request: Request<Body>) -> Response<Body> {
        if let Some(answer) = cors::preflight(&request) {
            return answer;
        }
        let request = Drained::of(request).map(Body::new);
        let origin = request.headers().get("origin").cloned();
        let mut response = self.authorised(entrance, request).await;
        cors::decorate(origin.as_ref(), response.headers_mut());
        response
    }

    async fn authorised(&self, entrance: Entrance, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        if entrance == Entrance::Public {
            if let Some(answer) = reserved(path) {
                return answer;
            }
            let token = headers::text(request.headers(), "x-access-token");
            let check = self.state.check_token(token);
            if !checks_itself(request.method(), path) && !check.allows(self.state.access()) {
                return json_error(
                    StatusCode::UNAUTHORIZED,
                    "unauthorized access, please provide a valid access token",
                );
            }
        }
        let named = match self.named_user(request.headers()) {
            Ok(named) => named,
            Err(error) => return self.user_error(&request, &error),
        };
        let user_agent = headers::text(request.headers(), "user-agent");
        let context = RequestContext {
            state: SharedState::clone(&self.state),
            named,
            deadline: None,
            keepalive: headers::keepalive(None),
            legacy: user_agent == Some(LEGACY_CLIENT),
        };
        self.routed(entrance, context, request).await
    }

    async fn routed(
        &self,
        entrance: Entrance,
        context: RequestContext,
        mut request: Request<Body>,
    ) -> Response<Body> {
        let path = request.uri().path();
        if let Some(rpc) = self.rpc.find(path) {
            if request.method() != Method::POST {
                return method_not_allowed("POST");
            }
            let legacy = context.legacy && path.starts_with("/filesystem.");
            let mut response = rpc.call(context, request).await;
            if legacy {
                response.headers_mut().insert("x-e2b-legacy-sdk", HeaderValue::from_static("true"));
            }
            return response;
        }
        // The router would answer HEAD from its GET routes. Upstream does not, so it gets a method no route has.
        if request.method() == Method::HEAD {
            *request.method_mut() = Method::TRACE;
        }
        request.extensions_mut().insert(context);
        let router = match entrance {
            Entrance::Public => self.plain.clone(),
            Entrance::Control => self.control.clone(),
        };
        let Ok(response) = router.oneshot(request).await;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED
            && let Some(allowed) = headers::text(response.headers(), ALLOW.as_str())
        {
            let allowed: Vec<&str> = allowed.split(',').map(str::trim).filter(|m| *m != "HEAD").collect();
            return method_not_allowed(&allowed.join(", "));
        }
        response
    }

    /// The account of Basic credentials; the password is not looked at.
    fn named_user(&self, headers: &HeaderMap) -> rpc::Result<Option<Account>> {
        let Some(user) = headers::text(headers, AUTHORIZATION.as_str()).and_then(basic_user) else {
            return Ok(None);
        };
        self.state.account(Some(&user)).map(Some)
    }

    /// An unknown user ends in-band on a stream, so that clients see the code.
    fn user_error(&self, request: &Request<Body>, error: &rpc::Error) -> Response<Body> {
        let content_type = headers::text(request.headers(), CONTENT_TYPE.as_str()).unwrap_or_default();
        if self.rpc.contains(request.uri().path()) && content_type.starts_with("application/connect+") {
            return rpc::stream_error_response(content_type, error);
        }
        rpc::error_response(error)
    }
}

/// Endpoints that are open, or check signatures besides tokens.
fn checks_itself(method: &Method, path: &str) -> bool {
    match path {
        "/health" => method == Method::GET,
        "/files" => method == Method::GET || method == Method::POST,
        _ => false,
    }
}

fn reserved(path: &str) -> Option<Response<Body>> {
    control_route(path).map(|route| {
        let message = format!("the path {route} is reserved for the E2B control plane");
        json_response(StatusCode::NOT_FOUND, &json!({ "message": message, "path": route, "code": 404 }))
    })
}

fn basic_user(authorization: &str) -> Option<String> {
    let (scheme, credentials) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let credentials = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (user, _password) = credentials.split_once(':')?;
    Some(user.to_owned())
}

/// The error form of plain endpoints (contract: envd, section 1).
pub fn json_error(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = json_response(status, &json!({ "code": status.as_u16(), "message": message }));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn json_response(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

fn not_found() -> Response<Body> {
    let mut response = Response::new(Body::from("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn method_not_allowed(allowed: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_paths_are_seen_through_disguise() {
        for path in [
            "/init",
            "/init/",
            "//init",
            "/%69nit",
            "/x/../init",
            "/./upgrade",
            "/files/%2e%2e/freeze",
            "/INIT",
        ] {
            assert!(reserved(path).is_some(), "{path}");
        }
        for path in ["/health", "/initial", "/files/init", "/%zz"] {
            assert!(reserved(path).is_none(), "{path}");
        }
    }

    #[test]
    fn basic_credentials_name_a_user() {
        assert_eq!(basic_user("Basic dXNlcjo=").as_deref(), Some("user"));
        assert_eq!(basic_user("basic cm9vdDpwYXNz").as_deref(), Some("root"));
        assert_eq!(basic_user("Bearer dXNlcjo="), None);
        assert_eq!(basic_user("Basic !"), None);
    }
}
