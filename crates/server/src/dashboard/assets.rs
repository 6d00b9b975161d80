//! The pages: files that are part of the program, compressed once for all browsers.

use std::io::Write;
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Request, Response, StatusCode, header};
use sha2::{Digest, Sha256};

use super::guard;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the dashboard.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
    packed: LazyLock<Packed, Box<dyn FnOnce() -> Packed + Send>>,
}

/// The parts of an asset that are computed once.
struct Packed {
    compressed: Bytes,
    /// The tag by which a browser asks whether the file has changed.
    tag: HeaderValue,
}

macro_rules! assets {
    ($($name:literal $kind:expr),* $(,)?) => {
        [$({
            let content = include_str!(concat!("../../dashboard/dist/", $name));
            Asset {
                name: $name,
                kind: $kind,
                content,
                packed: LazyLock::new(Box::new(move || pack(content))),
            }
        }),*]
    };
}

static ASSETS: LazyLock<[Asset; 14]> = LazyLock::new(|| {
    assets!(
        "index.html" "text/html; charset=utf-8",
        "frame.html" "text/html; charset=utf-8",
        "viewer.html" "text/html; charset=utf-8",
        "cli.html" "text/html; charset=utf-8",
        "report.html" "text/html; charset=utf-8",
        "app.js" SCRIPT,
        "terminal.js" SCRIPT,
        "viewer.js" SCRIPT,
        "report.js" SCRIPT,
        "app.css" "text/css; charset=utf-8",
        "viewer.css" "text/css; charset=utf-8",
        "report.css" "text/css; charset=utf-8",
        "icon.svg" "image/svg+xml",
        "licenses.txt" "text/plain; charset=utf-8",
    )
});

fn pack(content: &str) -> Packed {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail; if it did, the file would be sent as it is.
    let compressed =
        encoder.write_all(content.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default();
    let digest: [u8; 32] = Sha256::digest(content.as_bytes()).into();
    let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest));
    let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
    Packed { compressed: compressed.into(), tag }
}

/// Answers with a file of `assets/`, or with the page, which decides itself what it shows at a path.
pub(super) fn answer<B>(request: &Request<B>, path: &str) -> Response<Body> {
    let asset = match path.strip_prefix("assets/") {
        Some(name) => ASSETS.iter().find(|asset| asset.name == name && name != "index.html"),
        None => ASSETS.iter().find(|asset| asset.name == "index.html"),
    };
    let Some(asset) = asset else {
        return guard::sealed((StatusCode::NOT_FOUND, "page not found\n").into_response());
    };
    let Packed { compressed, tag } = &*asset.packed;
    let mut answer = if request.headers().get(header::IF_NONE_MATCH) == Some(tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let accepted = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let takes_gzip = accepted.is_some_and(|accepted| accepted.contains("gzip"));
        let kind = HeaderValue::from_static(asset.kind);
        if takes_gzip && !compressed.is_empty() {
            let gzip = HeaderValue::from_static("gzip");
            let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_ENCODING, gzip)];
            (headers, compressed.clone()).into_response()
        } else {
            ([(header::CONTENT_TYPE, kind)], asset.content).into_response()
        }
    };
    let headers = answer.headers_mut();
    headers.insert(header::ETAG, tag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // A new version of the program has new files under the same names.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let kind = match asset.name {
        "frame.html" => guard::Page::Cell,
        "viewer.html" | "report.html" => guard::Page::Framed,
        _ => guard::Page::Whole,
    };
    guard::protect_page(headers, kind);
    answer
}
