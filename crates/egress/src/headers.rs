//! The headers of a rule, with its secrets opened and its tokens signed.

use std::io::{self, ErrorKind};

use http::{HeaderMap, HeaderName, HeaderValue};
use sandcove_wire::secret::Secret;

use crate::identity::SigningKeys;
use crate::keyring::Keyring;
use crate::rules::{HostRule, PLACEHOLDER_END, Rules, SECRET_PLACEHOLDER, TOKEN_PLACEHOLDER};

/// Keys of the values that placeholders stand for.
pub(crate) struct Keys {
    /// Keys of secrets.
    pub(crate) secrets: Keyring,
    /// Keys of tokens.
    pub(crate) signing: SigningKeys,
}

/// Opens the secrets and signs the tokens that a rule names, and returns its headers for one request.
///
/// # Errors
/// An error if a secret or token is not there, or the value is none of a header. It has no value in it.
pub(crate) fn of_rule(rule: &HostRule, rules: &Rules, keys: &Keys) -> io::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, template) in &rule.headers {
        let wrong =
            || io::Error::new(ErrorKind::InvalidData, format!("the header `{name}` cannot be written"));
        let text = filled(template, rules, keys)?;
        let mut value = HeaderValue::from_str(text.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| wrong())?, value);
    }
    Ok(headers)
}

fn filled(template: &str, rules: &Rules, keys: &Keys) -> io::Result<Secret> {
    let (mut text, mut rest) = (String::new(), template);
    loop {
        let found =
            [SECRET_PLACEHOLDER, TOKEN_PLACEHOLDER].map(|begin| rest.find(begin).map(|at| (at, begin)));
        let Some((at, begin)) = found.into_iter().flatten().min() else { break };
        text.push_str(&rest[..at]);
        let (name, after) =
            rest[at + begin.len()..].split_once(PLACEHOLDER_END).ok_or(ErrorKind::InvalidData)?;
        let value = match begin {
            SECRET_PLACEHOLDER => secret(name, rules, &keys.secrets)?,
            _ => token(name, rules, &keys.signing)?,
        };
        text.push_str(value.expose());
        rest = after;
    }
    text.push_str(rest);
    Ok(Secret::new(text))
}

fn secret(name: &str, rules: &Rules, keys: &Keyring) -> io::Result<Secret> {
    let missing = || io::Error::new(ErrorKind::NotFound, format!("there is no secret `{name}`"));
    let secret = rules.secrets.get(name).ok_or_else(missing)?;
    keys.open(&secret.context, &secret.sealed)
}

fn token(name: &str, rules: &Rules, keys: &SigningKeys) -> io::Result<Secret> {
    let missing = || io::Error::new(ErrorKind::NotFound, "the sandbox has no identity".to_owned());
    keys.token(rules.identity.as_ref().ok_or_else(missing)?, name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rules::{Identity, SealedSecret};

    #[test]
    fn placeholders_become_values_that_do_not_show() {
        let keys = Keys { secrets: Keyring::generate().unwrap(), signing: SigningKeys::generate().unwrap() };
        let sealed = |value: &str| SealedSecret {
            context: "c".to_owned(),
            sealed: keys.secrets.seal("c", &Secret::new(value)).unwrap(),
        };
        let headers = |value: &str| {
            let rule = HostRule { host: "h".into(), headers: vec![("X-Key".into(), value.into())] };
            let rules = Rules {
                hosts: vec![rule.clone()],
                secrets: BTreeMap::from([("a".into(), sealed("one")), ("b".into(), sealed("two\nlines"))]),
                identity: Some(Identity {
                    issuer: "i".into(),
                    subject: "s".into(),
                    claims: BTreeMap::new(),
                    audiences: BTreeMap::from([("my token".into(), "aud".into())]),
                }),
                ..Rules::default()
            };
            of_rule(&rule, &rules, &keys)
        };
        let found = headers("Bearer ${e2b.secrets.a}, ${e2b.secrets.a}!").unwrap();
        assert_eq!(found["x-key"], "Bearer one, one!");
        assert!(!format!("{found:?}").contains("one"));
        assert_eq!(headers("plain").unwrap()["x-key"], "plain");
        assert_eq!(
            headers("${e2b.secrets.missing}").unwrap_err().to_string(),
            "there is no secret `missing`"
        );
        let error = headers("${e2b.secrets.b}").unwrap_err().to_string();
        assert_eq!(error, "the header `X-Key` cannot be written");
        let mixed = headers("${e2b.identity.tokens.my token} ${e2b.secrets.a}").unwrap();
        let mixed = mixed["x-key"].to_str().unwrap();
        assert!(mixed.ends_with(" one") && mixed.split('.').count() == 3, "{mixed}");
        let error = headers("${e2b.identity.tokens.other}").unwrap_err().to_string();
        assert_eq!(error, "the sandbox has no token `other`");
    }
}
