//! Workload identity of a sandbox: `iam` of a new sandbox (contract: control-plane, section 6.1).

use std::collections::BTreeMap;

use sandcove_isolate::Identity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sandbox::Details;
use crate::{Error, Result};

/// Maximum number of tokens of a sandbox.
const MAX_TOKENS: usize = 5;
/// Maximum length of the name of a token, and of its audience, bytes.
const MAX_NAME: usize = 128;
const MAX_AUDIENCE: usize = 1024;
/// The one type of tokens.
const JWT_SVID: &str = "JWT-SVID";

/// The tokens that requests of a sandbox may get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// URL of the server when the sandbox was created.
    issuer: String,
    /// Domain of the server, without port.
    trust_domain: String,
    /// Audiences by name of the token.
    audiences: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    tokens: BTreeMap<String, GivenToken>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenToken {
    audience: String,
    token_type: String,
}

impl Tokens {
    /// Checks `iam` as a client sends it; none without tokens.
    pub(crate) fn new(given: Option<Value>, issuer: String, domain: &str) -> Result<Option<Self>> {
        let Some(given) = given.filter(|given| !given.is_null()) else { return Ok(None) };
        let Given { tokens } = Given::deserialize(given).map_err(|_| {
            refused("'iam.tokens' must have an 'audience' and a 'tokenType' for each name".to_owned())
        })?;
        if tokens.len() > MAX_TOKENS {
            return Err(refused(format!("at most {MAX_TOKENS} tokens are allowed, not {}", tokens.len())));
        }
        for (name, token) in &tokens {
            let has_fault = |c: char| c.is_control() || c == '{' || c == '}';
            if name.is_empty() || name.len() > MAX_NAME || name.contains(has_fault) {
                return Err(refused(format!(
                    "the name of a token must have 1 to {MAX_NAME} bytes, without braces and control characters"
                )));
            }
            if token.token_type != JWT_SVID {
                return Err(refused(format!("the type of the token '{name}' must be {JWT_SVID}")));
            }
            if token.audience.is_empty() || token.audience.len() > MAX_AUDIENCE {
                return Err(refused(format!(
                    "the audience of the token '{name}' must have 1 to {MAX_AUDIENCE} bytes"
                )));
            }
        }
        if tokens.is_empty() {
            return Ok(None);
        }
        let audiences = tokens.into_iter().map(|(name, token)| (name, token.audience)).collect();
        let trust_domain = domain.split(':').next().unwrap_or_default().to_owned();
        Ok(Some(Self { issuer, trust_domain, audiences }))
    }

    /// The identity of the sandbox that has these tokens.
    pub(crate) fn of(&self, details: &Details) -> Identity {
        let (team, sandbox) = (details.team.to_string(), details.id.to_string());
        let template = details.build.template_id().to_string();
        let claims = [("team_id", &team), ("sandbox_id", &sandbox), ("template_id", &template)];
        Identity {
            issuer: self.issuer.clone(),
            subject: format!("spiffe://{}/team/{team}/sandbox/{sandbox}", self.trust_domain),
            claims: claims.map(|(name, value)| (name.to_owned(), value.clone())).into(),
            audiences: self.audiences.clone(),
        }
    }
}

fn refused(reason: String) -> Error {
    Error::Refused(format!("invalid iam: {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(given: Value) -> Result<Option<Tokens>> {
        Tokens::new(Some(given), "https://api.example.com".into(), "example.com:443")
    }

    #[test]
    fn tokens_have_an_audience_and_one_type() {
        let token = |audience: &str, kind: &str| json!({ "audience": audience, "tokenType": kind });
        let found =
            check(json!({ "tokens": { "aws": token("sts.amazonaws.com", JWT_SVID) } })).unwrap().unwrap();
        assert_eq!(found.audiences["aws"], "sts.amazonaws.com");
        assert_eq!(found.trust_domain, "example.com");
        assert!(check(json!({})).unwrap().is_none() && check(json!({ "tokens": {} })).unwrap().is_none());
        assert!(check(Value::Null).unwrap().is_none());
        let many: serde_json::Map<String, Value> =
            (0..6).map(|n| (format!("t{n}"), token("a", JWT_SVID))).collect();
        for bad in [
            json!({ "tokens": { "a": token("b", "JWT") } }),
            json!({ "tokens": { "a": token("", JWT_SVID) } }),
            json!({ "tokens": { "": token("b", JWT_SVID) } }),
            json!({ "tokens": { "a}b": token("b", JWT_SVID) } }),
            json!({ "tokens": { "a\n": token("b", JWT_SVID) } }),
            json!({ "tokens": { "a": { "audience": "b" } } }),
            json!({ "tokens": [] }),
            json!({ "tokens": many }),
        ] {
            assert!(matches!(check(bad.clone()), Err(Error::Refused(_))), "{bad}");
        }
    }
}
