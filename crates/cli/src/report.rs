//! Errors as users see them: what failed, why, and a hint if there is something to do.

use std::io::ErrorKind;

use sandcove_client::{Error as ClientError, server_of};

use crate::output::note;

/// Prints an error and its hint on standard error.
pub fn report(error: &anyhow::Error) {
    note!("error: {}", text(error));
}

fn text(error: &anyhow::Error) -> String {
    let client = error.chain().find_map(|cause| cause.downcast_ref::<ClientError>());
    let denied = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::PermissionDenied);
    match client {
        Some(ClientError::Refused { status: 401, url, .. }) => format!(
            "the server at {} does not accept the API key\nhint: `sandcove keys create NAME` on its host prints a new key, for \
             E2B_API_KEY or `sandcove auth login`; without E2B_API_KEY, commands use the key of this machine's server",
            server_of(url)
        ),
        Some(ClientError::AdminToken { .. }) => format!(
            "{error:#}\nhint: pass the token that the server was started with: --admin-token-file, or SANDCOVE_ADMIN_TOKEN; a context \
             keeps one with `sandcove config set NAME.admin-token`"
        ),
        Some(ClientError::Unreachable { .. }) => format!(
            "{error:#}\nhint: `sandcove up` starts the server of this machine; for another one, check --url, the context or \
             E2B_API_URL"
        ),
        Some(ClientError::Refused { status, url, .. }) if *status >= 500 => {
            format!("{error:#} (HTTP status {status} from {})", server_of(url))
        }
        _ if denied && !rustix::process::geteuid().is_root() => format!(
            "{error:#}\nhint: run the command with sudo; commands that use sandboxes need no root when E2B_API_URL and \
             E2B_API_KEY are set"
        ),
        _ => format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_key_comes_with_what_to_do() {
        let refused =
            ClientError::Refused { url: "http://h:1/x".into(), status: 401, message: "Invalid".into() };
        let text = text(&refused.into());
        assert!(text.starts_with("the server at http://h:1 does not accept the API key\nhint: "), "{text}");
    }

    #[test]
    fn a_refused_admin_token_is_not_called_an_api_key() {
        let text = text(&ClientError::AdminToken { url: "http://h:1/admin/audit".into() }.into());
        assert!(
            text.starts_with("the server at http://h:1 does not accept the admin token\nhint: "),
            "{text}"
        );
        assert!(!text.contains("API key"), "{text}");
    }
}
