//! Signed URLs, with which a browser or another program opens one file of a sandbox without a token (contract: envd, section 4.1).

use std::time::Duration;

use jiff::Timestamp;
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::signature::{Operation, UrlSignature};

use crate::sandbox::Sandbox;
use crate::server::segment;

impl Sandbox {
    /// The URL of a download of a file as `user`, for `valid` from now on or for as long as the sandbox exists.
    pub fn download_url(&self, path: &str, user: &str, valid: Option<Duration>) -> String {
        self.file_url(Operation::Read, path, user, valid)
    }

    /// The URL to which a file is uploaded as `user`, for `valid` from now on or for as long as the sandbox exists.
    pub fn upload_url(&self, path: &str, user: &str, valid: Option<Duration>) -> String {
        self.file_url(Operation::Write, path, user, valid)
    }

    fn file_url(&self, operation: Operation, path: &str, user: &str, valid: Option<Duration>) -> String {
        let mut url =
            self.url(AGENT_PORT, &format!("/files?path={}&username={}", segment(path), segment(user)));
        // An agent without a token takes no signature.
        let Some(token) = self.token() else { return url };
        let seconds = |valid: Duration| i64::try_from(valid.as_secs()).unwrap_or(i64::MAX);
        let expiration = valid.map(|valid| Timestamp::now().as_second().saturating_add(seconds(valid)));
        let signed = UrlSignature::sign(&token, path, operation, user, expiration);
        url.push_str(&format!("&signature={}", segment(&signed.value)));
        if let Some(expiration) = expiration {
            url.push_str(&format!("&signature_expiration={expiration}"));
        }
        url
    }
}
