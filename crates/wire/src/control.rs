//! Control routes: the agent's routes that are the control plane's own (contract: envd, section 7). The server's proxy and
//! the agent's public port both refuse them, by the same rule.

use percent_encoding::percent_decode_str;

/// Paths of the control routes.
pub const CONTROL_ROUTES: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];

/// The decoded and cleaned path, if `path` is a control route in any spelling: percent-encoded, with empty or dot
/// segments, in any case.
pub fn control_route(path: &str) -> Option<String> {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let clean = clean_path(&decoded);
    CONTROL_ROUTES.iter().any(|route| route.eq_ignore_ascii_case(&clean)).then_some(clean)
}

/// The absolute path that a decoded URL path means: without empty and `.` segments, and with `..` taken back. `/..` is `/`.
pub fn clean_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_routes_are_found_behind_any_spelling() {
        for path in [
            "/init",
            "/init/",
            "//init",
            "init",
            "/%69nit",
            "/%2Finit",
            "/./init",
            "/x/../init",
            "/../init",
            "/./upgrade",
            "/files/%2e%2e/freeze",
            "/%2e%2e/upgrade",
            "/Freeze",
            "/%46SFREEZE",
        ] {
            assert!(control_route(path).is_some(), "{path}");
        }
        for path in [
            "/",
            "/files",
            "/health",
            "/initial",
            "/files/init",
            "/%zz",
            "/%2569nit",
            "/process.Process/Start",
        ] {
            assert_eq!(control_route(path), None, "{path}");
        }
    }

    #[test]
    fn the_cleaned_path_is_returned() {
        assert_eq!(control_route("/x/../%69nit/").as_deref(), Some("/init"));
        assert_eq!(clean_path("/a//./b/../c/"), "/a/c");
        assert_eq!(clean_path(""), "/");
    }
}
