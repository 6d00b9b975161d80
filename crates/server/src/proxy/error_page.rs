//! Error pages for browsers whose request was refused (contract: envd, section 9).

use http::HeaderMap;

use super::refusal::{Format, Refusal};

const BROWSERS: [&str; 7] = ["mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie"];

/// The format of an error: HTML for a browser that navigates, JSON for programs and for scripts in a browser.
pub(crate) fn format_for(headers: &HeaderMap) -> Format {
    let text =
        |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let agent = text("user-agent");
    let accept = text("accept");
    let is_browser = BROWSERS.iter().any(|name| agent.contains(name));
    let wants_json = accept.contains("application/json") && !accept.contains("text/html");
    let is_script = ["cors", "no-cors", "same-origin", "websocket"]
        .contains(&text("sec-fetch-mode").as_str())
        || headers.contains_key("x-requested-with");
    if is_browser && !wants_json && !is_script { Format::Html } else { Format::Json }
}

/// The page that explains `refusal`.
pub(crate) fn render(refusal: &Refusal) -> String {
    let (title, id, text) = match refusal {
        Refusal::NotFound(id) => (
            "Sandbox Not Found".to_owned(),
            id.as_str(),
            "It was never there, it has been killed, or its time is up.".to_owned(),
        ),
        Refusal::PortClosed(id, port) => (
            "Closed Port".to_owned(),
            id.as_str(),
            format!("The sandbox is running, but there is no service running on port {port}."),
        ),
        Refusal::TokenMissing(id) => {
            ("Missing Traffic Access Token".to_owned(), id.as_str(), refusal.to_string())
        }
        Refusal::TokenInvalid(id) => {
            ("Invalid Traffic Access Token".to_owned(), id.as_str(), refusal.to_string())
        }
        Refusal::InterpreterToken(id) => {
            ("Missing Access Token".to_owned(), id.as_str(), refusal.to_string())
        }
        Refusal::TooManyConnections(id, _) => {
            ("Too Many Connections".to_owned(), id.as_str(), refusal.to_string())
        }
        Refusal::UnaskedUpgrade(id, _) => ("Bad Answer".to_owned(), id.as_str(), refusal.to_string()),
        Refusal::WakeForbidden(id) => ("Sandbox Paused".to_owned(), id.as_str(), refusal.to_string()),
        Refusal::InTransition(id) => ("Sandbox Busy".to_owned(), id.as_str(), refusal.to_string()),
        Refusal::Stopping(id) => ("Server Stopping".to_owned(), id.as_str(), refusal.to_string()),
        Refusal::TeamLimit(id, _) => ("Too Many Sandboxes".to_owned(), id.as_str(), refusal.to_string()),
        Refusal::Failed(id) => ("Sandbox Unreachable".to_owned(), id.as_str(), refusal.to_string()),
        Refusal::BadAddress(text) => ("Bad Address".to_owned(), "", (*text).to_owned()),
        Refusal::ControlRoute(_) => ("Not Found".to_owned(), "", refusal.to_string()),
    };
    let (title, id, text) = (escape(&title), escape(id), escape(&text));
    format!(
        "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>\
         body{{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:18vh auto;padding:0 1rem;color:#222}}\
         code{{background:#f2f2f2;padding:.1em .4em;border-radius:4px}}</style></head>\
         <body><h1>{title}</h1><p>Sandbox <code>{id}</code></p><p>{text}</p></body></html>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn format(pairs: &[(&'static str, &'static str)]) -> Format {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        format_for(&pairs.iter().map(pair).collect())
    }

    #[test]
    fn only_a_browser_that_navigates_gets_a_page() {
        let browser = ("user-agent", "Mozilla/5.0 Chrome/130");
        assert_eq!(format(&[browser]), Format::Html);
        assert_eq!(format(&[browser, ("accept", "text/html,application/json")]), Format::Html);
        assert_eq!(format(&[browser, ("accept", "application/json")]), Format::Json);
        assert_eq!(format(&[browser, ("sec-fetch-mode", "cors")]), Format::Json);
        assert_eq!(format(&[browser, ("x-requested-with", "x")]), Format::Json);
        assert_eq!(format(&[("user-agent", "python-httpx/0.27"), ("accept", "text/html")]), Format::Json);
    }

    #[test]
    fn pages_name_the_sandbox_and_carry_no_markup_of_others() {
        let page = render(&Refusal::PortClosed("i<b>".into(), 8080));
        assert!(page.starts_with("<html") && page.ends_with("</html>"));
        assert!(page.contains("no service running on port 8080") && page.contains("i&lt;b&gt;"));
    }
}
