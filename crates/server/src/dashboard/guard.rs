//! Who may send requests of a session, and what answers may do in a browser.
//!
//! Pages of sandboxes have origins of their own (`<port>-<sandbox>.<domain>`), but may be of the same *site* as the dashboard, so that cookies with
//! `SameSite` are sent with their requests. And some paths of the dashboard's own origin lead to a sandbox, whose answer may be a page. So only
//! requests of the dashboard's pages count, and no answer of a sandbox is a page in the dashboard's origin.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};

use crate::{Error, Result};

/// The content security policy of pages: only their own files, no text becomes a script or markup.
const PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
    frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";
/// The policy of pages that the dashboard shows in a frame: as [`PAGE`], but its own pages may be around them. A page of a sandbox is not one of
/// them, because its origin is opaque wherever it is served at the dashboard's host.
const FRAMED: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'";
/// The policy of the frame that shows HTML of a cell: scripts run there, in an origin that is nobody's, and reach nothing.
const FRAME: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; \
    img-src data: blob:; font-src data:; media-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
/// The policy of answers that are data. Should a browser show one as a page, it is a page without scripts in an origin of its own.
const DATA: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

/// Headers of answers that pages need. All others are dropped: those of sandboxes could set cookies or change what the browser keeps of
/// this origin.
const PASSED: [HeaderName; 10] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::LAST_MODIFIED,
    header::RETRY_AFTER,
    HeaderName::from_static("x-next-token"),
    HeaderName::from_static("x-total-running"),
    HeaderName::from_static("connect-content-encoding"),
];

/// Refuses a request that does not come from a page of the dashboard.
///
/// Browsers say where a request comes from in `Sec-Fetch-Site`, which no page can set, but only to servers with TLS or on this machine.
/// Without it, `Origin` decides, which they send with every request that changes something.
pub(super) fn admit<B>(request: &Request<B>) -> Result<()> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let refused = || Error::Refused("the request comes from another site".into());
    if let Some(site) = text("sec-fetch-site") {
        return if site == "same-origin" { Ok(()) } else { Err(refused()) };
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let Some(origin) = text("origin") else {
        return if reads { Ok(()) } else { Err(refused()) };
    };
    let origin = origin.split_once("://").map(|(_, host)| host);
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let hosts = [authority, text("host"), text("x-forwarded-host")];
    if origin.is_some() && hosts.contains(&origin) { Ok(()) } else { Err(refused()) }
}

/// Kind of a page, by who may show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// A page of its own.
    Whole,
    /// A page in a frame of the dashboard.
    Framed,
    /// The frame that shows HTML of a cell.
    Cell,
}

/// Adds the headers of pages.
pub(super) fn protect_page(headers: &mut HeaderMap, page: Page) {
    let (policy, ancestors) = match page {
        Page::Whole => (PAGE, Some("DENY")),
        Page::Framed => (FRAMED, Some("SAMEORIGIN")),
        Page::Cell => (FRAME, None),
    };
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    if let Some(ancestors) = ancestors {
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static(ancestors));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    protect(headers);
}

fn protect(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

/// Makes an answer data: a browser that is led to it stores it as a file, and nothing of it acts on the browser.
pub(super) fn sealed<B>(mut answer: Response<B>) -> Response<B> {
    let headers = answer.headers_mut();
    let unwanted: Vec<HeaderName> = headers.keys().filter(|name| !PASSED.contains(name)).cloned().collect();
    for name in &unwanted {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(DATA));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    protect(headers);
    answer
}

/// Makes an answer of a sandbox harmless in the origin of the API: it sets no cookies there, and a page is one without scripts, in an origin of
/// its own. Programs notice nothing of it.
pub(crate) fn harmless<B>(answer: &mut Response<B>) {
    let headers = answer.headers_mut();
    for name in ["set-cookie", "clear-site-data", "service-worker-allowed"] {
        headers.remove(name);
    }
    // A browser shows this kind with a program of its own, which does not work there.
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/pdf") {
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri("/dashboard/api/sandboxes");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        admit(&request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn only_pages_of_the_same_origin_send_requests() {
        let host = ("host", "sandcove.example");
        let own = ("origin", "https://sandcove.example");
        let other = ("origin", "https://3000-iabc.sandcove.example");
        assert!(admitted(Method::POST, &[host, own]));
        assert!(admitted(Method::POST, &[host, own, ("sec-fetch-site", "same-origin")]));
        assert!(admitted(Method::GET, &[host]));
        assert!(!admitted(Method::POST, &[host]), "no word of where it comes from");
        for site in ["same-site", "cross-site", "none"] {
            for method in [Method::GET, Method::POST] {
                assert!(!admitted(method, &[host, own, ("sec-fetch-site", site)]), "{site}");
            }
        }
        for origin in [other, ("origin", "null"), ("origin", ""), ("origin", "sandcove.example")] {
            assert!(!admitted(Method::POST, &[host, origin]), "{origin:?}");
            assert!(!admitted(Method::GET, &[host, origin]), "{origin:?}");
        }
        let behind = [("host", "127.0.0.1:3000"), own, ("x-forwarded-host", "sandcove.example")];
        assert!(admitted(Method::POST, &behind));
    }

    #[test]
    fn an_answer_keeps_no_header_that_acts_on_the_browser() {
        let mut answer = Response::new(());
        for name in
            ["clear-site-data", "access-control-allow-origin", "service-worker-allowed", "refresh", "link"]
        {
            answer.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static("*"));
        }
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
        let answer = sealed(answer);
        assert!(answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("sandbox;"));
        assert_eq!(answer.headers()[header::CONTENT_DISPOSITION], "attachment");
        assert!(answer.headers().values().all(|value| value != "*"));
    }
}
