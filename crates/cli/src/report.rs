//! Errors as users see them: what failed, why, and a hint if there is something to do.

use std::io::ErrorKind;

use sandcove_client::{Error as ClientError, server_of};

use crate::output::{note, plain};

/// Prints an error and its hint on standard error.
pub fn report(error: &anyhow::Error) {
    note!("error: {}", described(error));
}

/// Formats an error as [`report`] prints it, for a command that goes on.
pub fn described(error: &anyhow::Error) -> String {
    plain(&text(error))
}

/// Formats an error with its hint, on a line of its own.
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
        Some(ClientError::Status { status, url, .. }) if *status < 500 => format!(
            "{error:#}\nhint: another program may answer at {}; check --url, the context, E2B_API_URL and E2B_SANDBOX_URL",
            server_of(url)
        ),
        Some(ClientError::Refused { message, .. }) => format!("{error:#}{}", list_of(message)),
        _ if denied && !rustix::process::geteuid().is_root() => format!(
            "{error:#}\nhint: run the command with sudo; commands that use sandboxes need no root when E2B_API_URL and \
             E2B_API_KEY are set"
        ),
        _ => format!("{error:#}"),
    }
}

/// A hint at the command that lists what a server does not know, by the message of the server; on a line of its own, if there is one.
pub fn list_of(message: &str) -> String {
    /// How messages about missing things begin and end, and the command that lists what there is. Messages with another end say more.
    const MISSING: [(&str, &str, &str); 7] = [
        ("template '", "' not found", "sandcove template list"),
        ("tag '", "'", "sandcove template list"),
        ("volume '", "' not found", "sandcove volume list"),
        ("invalid mounts:\nvolume '", "' not found", "sandcove volume list"),
        ("webhook '", "' not found", "sandcove webhook list"),
        ("sandbox \"", "\" doesn't exist or you don't have access to it", "sandcove sandbox list"),
        ("secret not found", "", "sandcove secret list"),
    ];
    let message = message.to_lowercase();
    MISSING
        .iter()
        .find(|(begin, end, _)| message.starts_with(begin) && message.ends_with(end))
        .map(|(.., list)| format!("\nhint: `{list}` shows all"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_the_list_of_what_there_is() {
        let text = |message: &str| {
            let refused =
                ClientError::Refused { url: "http://h:1/x".into(), status: 404, message: message.into() };
            text(&refused.into())
        };
        for (message, list) in [
            ("template 'x' not found", "template"),
            ("Template 'x' with tag 'v1' not found", "template"),
            ("volume 'x' not found", "volume"),
            ("invalid mounts:\nvolume 'x' not found", "volume"),
            ("webhook 'x' not found", "webhook"),
            ("Secret not found", "secret"),
            ("Sandbox \"ix\" doesn't exist or you don't have access to it", "sandbox"),
        ] {
            assert_eq!(text(message), format!("{message}\nhint: `sandcove {list} list` shows all"));
        }
        let complete =
            "template 'desktop' not found; build it with `sandcove template build --builtin desktop`";
        assert_eq!(text(complete), complete);
    }

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
