//! The answers to traffic that does not reach its sandbox (contract: envd, section 9). Every `match` here names every
//! variant, so that a new one cannot be forgotten.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sandcove_wire::boot::INTERPRETER_PORT;
use serde_json::{Value, json};

use super::error_page;
use super::refusal::{Format, Refusal};

/// Hint for when nothing listens on the port of the code interpreter.
const NO_INTERPRETER: &str = "if this is run_code: the code interpreter is being restarted (try again in a moment), or the template has \
    none. Build it from the template code-interpreter-v1, or with the variable SANDCOVE_INTERPRETER=python (set_envs, or ENV in a \
    Dockerfile) on an image with Python 3.9 or newer; `sandcove template build --interpreter` does the same";

/// Hint for when a request names no sandbox, by its host, a header or anything else.
const NO_SANDBOX: &str = "no running sandbox has this token or signature. The signature of a URL is for its path, user and expiration \
    only: a URL that was changed, or whose sandbox has ended, belongs to none";

/// The answer to traffic that does not reach its sandbox.
pub(crate) fn refused(refusal: &Refusal, format: Format) -> Response {
    let status = status(refusal);
    let code = status.as_u16();
    let message = refusal.to_string();
    let id = match refusal {
        Refusal::BadAddress(text) => return (status, *text).into_response(),
        Refusal::ControlRoute(path) => {
            return json_answer(status, &json!({ "message": message, "path": path, "code": code }));
        }
        Refusal::NotFound(id)
        | Refusal::PortClosed(id, _)
        | Refusal::TokenMissing(id)
        | Refusal::TokenInvalid(id)
        | Refusal::InterpreterToken(id)
        | Refusal::TooManyConnections(id, _)
        | Refusal::UnaskedUpgrade(id, _)
        | Refusal::WakeForbidden(id)
        | Refusal::InTransition(id)
        | Refusal::Stopping(id)
        | Refusal::TeamLimit(id, _)
        | Refusal::Failed(id) => id,
    };
    if format == Format::Html {
        let page = error_page::render(refusal);
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        return (status, [(header::CONTENT_TYPE, html)], page).into_response();
    }
    let mut answer = json!({ "sandboxId": id, "message": message, "code": code });
    match refusal {
        Refusal::PortClosed(_, port) | Refusal::UnaskedUpgrade(_, port) => answer["port"] = json!(port),
        Refusal::TooManyConnections(_, limit) => answer["connectionLimit"] = json!(limit),
        Refusal::TeamLimit(_, limit) => answer["connectionLimit"] = json!(limit),
        _ => {}
    }
    if matches!(refusal, Refusal::PortClosed(_, INTERPRETER_PORT)) {
        // Clients show the whole answer as the text of their error.
        answer["hint"] = json!(NO_INTERPRETER);
    }
    if id.is_empty() {
        answer["hint"] = json!(NO_SANDBOX);
    }
    json_answer(status, &answer)
}

fn status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::BadAddress(_) => StatusCode::BAD_REQUEST,
        Refusal::ControlRoute(_) => StatusCode::NOT_FOUND,
        Refusal::NotFound(_) | Refusal::PortClosed(..) | Refusal::UnaskedUpgrade(..) | Refusal::Failed(_) => {
            StatusCode::BAD_GATEWAY
        }
        Refusal::TokenMissing(_)
        | Refusal::TokenInvalid(_)
        | Refusal::InterpreterToken(_)
        | Refusal::WakeForbidden(_) => StatusCode::FORBIDDEN,
        Refusal::Stopping(_) => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::InTransition(_) => StatusCode::CONFLICT,
        Refusal::TooManyConnections(..) | Refusal::TeamLimit(..) => StatusCode::TOO_MANY_REQUESTS,
    }
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    (status, [(header::CONTENT_TYPE, kind)], value.to_string()).into_response()
}
