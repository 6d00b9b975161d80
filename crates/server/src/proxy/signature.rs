//! Signatures of file URLs. They are the agent's to judge; here they tell whose URL it is, because some clients build
//! it without a sandbox id (contract: control-plane, section 14).

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::Method;
use sandcove_wire::secret::Secret;
use sha2::{Digest, Sha256};

/// What a signed URL carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedUrl {
    path: String,
    operation: &'static str,
    user: String,
    signature: String,
    expiration: Option<String>,
}

impl SignedUrl {
    /// Reads a `/files` request; `None` when it is not one or not signed.
    pub(crate) fn parse(method: &Method, path: &str, query: Option<&str>) -> Option<Self> {
        if path != "/files" {
            return None;
        }
        let operation = match *method {
            Method::GET | Method::HEAD => "read",
            Method::POST => "write",
            _ => return None,
        };
        let mut url = Self {
            path: String::new(),
            operation,
            user: String::new(),
            signature: String::new(),
            expiration: None,
        };
        for (name, value) in form_urlencoded::parse(query?.as_bytes()) {
            match name.as_ref() {
                "path" => url.path = value.into_owned(),
                "username" => url.user = value.into_owned(),
                // A plus that was not encoded was read as a space; no signature has one.
                "signature" => url.signature = value.replace(' ', "+"),
                "signature_expiration" => url.expiration = Some(value.into_owned()),
                _ => {}
            }
        }
        url.signature.starts_with("v1_").then_some(url)
    }

    /// Whether it was signed with `token`. Expired ones are too: the agent says so better.
    pub(crate) fn is_signed_with(&self, token: &Secret) -> bool {
        let Self { path, operation, user, .. } = self;
        let mut text = format!("{path}:{operation}:{user}:{}", token.expose());
        if let Some(expiration) = &self.expiration {
            text.push(':');
            text.push_str(expiration);
        }
        let expected = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())));
        Secret::new(expected).matches(&self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_belongs_to_the_token_that_signed_it() {
        // printf '/a b:read:user:tok:17' | sha256sum
        let digest = Sha256::digest(b"/a b:read:user:tok:17");
        let signature = STANDARD_NO_PAD.encode(digest).replace('+', "%2B").replace('/', "%2F");
        let query = format!("path=%2Fa+b&username=user&signature=v1_{signature}&signature_expiration=17");
        let url = SignedUrl::parse(&Method::GET, "/files", Some(&query)).unwrap();
        assert!(url.is_signed_with(&Secret::new("tok")));
        assert!(!url.is_signed_with(&Secret::new("other")));
        let write = SignedUrl::parse(&Method::POST, "/files", Some(&query)).unwrap();
        assert!(!write.is_signed_with(&Secret::new("tok")));
    }

    #[test]
    fn unsigned_requests_are_nobodys() {
        assert_eq!(SignedUrl::parse(&Method::GET, "/files", Some("path=a")), None);
        assert_eq!(SignedUrl::parse(&Method::GET, "/files", None), None);
        assert_eq!(SignedUrl::parse(&Method::GET, "/health", Some("signature=v1_x")), None);
    }
}
