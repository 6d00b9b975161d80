//! Signed file URLs. The agent checks the signatures; here they identify the sandbox of a URL, because some clients
//! build it without a sandbox id (contract: control-plane, section 14).

use http::Method;
use sandcove_wire::secret::Secret;
use sandcove_wire::signature::{Operation, UrlSignature};

/// A signed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedUrl {
    path: String,
    operation: Operation,
    username: String,
    signature: UrlSignature,
}

impl SignedUrl {
    /// Reads the signature of a `/files` request; `None` for any other request, or one without a well-formed signature.
    pub(crate) fn parse(method: &Method, path: &str, query: Option<&str>) -> Option<Self> {
        if path != "/files" {
            return None;
        }
        let operation = match *method {
            Method::GET | Method::HEAD => Operation::Read,
            Method::POST => Operation::Write,
            _ => return None,
        };
        let mut url = Self {
            path: String::new(),
            operation,
            username: String::new(),
            signature: UrlSignature { value: String::new(), expiration: None },
        };
        for (name, value) in form_urlencoded::parse(query?.as_bytes()) {
            match name.as_ref() {
                "path" => url.path = value.into_owned(),
                "username" => url.username = value.into_owned(),
                // A plus that was not encoded was read as a space; no signature has one.
                "signature" => url.signature.value = value.replace(' ', "+"),
                // The agent refuses every other form.
                "signature_expiration" => url.signature.expiration = Some(value.parse().ok()?),
                _ => {}
            }
        }
        url.signature.is_well_formed().then_some(url)
    }

    /// Whether the signature has expired at `now`, Unix seconds.
    pub(crate) fn is_expired(&self, now: i64) -> bool {
        self.signature.is_expired(now)
    }

    /// Whether the URL was signed with a token, for any number of tokens. An expired signature counts: the agent answers it with the
    /// proper error.
    pub(crate) fn check(&self) -> impl Fn(&Secret) -> bool {
        self.signature.check(&self.path, self.operation, &self.username)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn a_url_belongs_to_the_token_that_signed_it() {
        // printf '/a b:read:user:tok:17' | sha256sum
        let digest = Sha256::digest(b"/a b:read:user:tok:17");
        let signature = STANDARD_NO_PAD.encode(digest).replace('+', "%2B").replace('/', "%2F");
        let query = format!("path=%2Fa+b&username=user&signature=v1_{signature}&signature_expiration=17");
        let url = SignedUrl::parse(&Method::GET, "/files", Some(&query)).unwrap();
        assert!(url.check()(&Secret::new("tok")));
        assert!(!url.check()(&Secret::new("other")));
        let write = SignedUrl::parse(&Method::POST, "/files", Some(&query)).unwrap();
        assert!(!write.check()(&Secret::new("tok")));
    }

    #[test]
    fn unsigned_requests_are_nobodys() {
        assert_eq!(SignedUrl::parse(&Method::GET, "/files", Some("path=a")), None);
        assert_eq!(SignedUrl::parse(&Method::GET, "/files", None), None);
        assert_eq!(SignedUrl::parse(&Method::GET, "/health", Some("signature=v1_x")), None);
        let signature = format!("signature=v1_{}", "x".repeat(43));
        let parse = |query: &str| SignedUrl::parse(&Method::GET, "/files", Some(query));
        assert!(parse(&signature).is_some());
        assert_eq!(parse(&format!("{signature}&signature_expiration=soon")), None);
        assert_eq!(parse("signature=v1_x"), None);
    }
}
