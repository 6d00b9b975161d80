//! The page itself: files that are part of the program.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

macro_rules! files {
    ($($name:literal $kind:expr),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("page/", $name)))),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The files of the page: name, media type and content of each.
const FILES: &[(&str, &str, &str)] = files!(
    "index.html" HTML,
    "style.css" CSS,
    "cell.css" CSS,
    "icon.svg" SVG,
    "start.js" SCRIPT,
    "main.js" SCRIPT,
    "again.js" SCRIPT,
    "api.js" SCRIPT,
    "dom.js" SCRIPT,
    "state.js" SCRIPT,
    "place.js" SCRIPT,
    "table.js" SCRIPT,
    "filters.js" SCRIPT,
    "cell.js" SCRIPT,
    "verdict.js" SCRIPT,
    "rating.js" SCRIPT,
    "code.js" SCRIPT,
    "diff.js" SCRIPT,
    "charts.js" SCRIPT,
    "runs.js" SCRIPT,
    "setup.html" HTML,
    "setup.css" CSS,
    "setup.js" SCRIPT,
    "report.html" HTML,
    "report.css" CSS,
    "report.js" SCRIPT,
);

/// A file of the page; the page itself for paths that pages of promptfoo have, so that links to them work.
pub(crate) async fn asset(uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let name = match path {
        "" | "eval" => "index.html",
        "redteam/setup" => "setup.html",
        "report" | "reports" | "redteam/report" | "redteam/reports" => "report.html",
        run if run.starts_with("eval/") => "index.html",
        other => other,
    };
    match FILES.iter().find(|(known, ..)| *known == name) {
        // Asked for again every time: a new version of the program has new files under the same names.
        Some((_, kind, content)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "no-cache")], *content).into_response()
        }
        None => (StatusCode::NOT_FOUND, "page not found\n").into_response(),
    }
}
