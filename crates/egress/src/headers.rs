//! The headers of a rule, with its secrets opened.

use std::io::{self, ErrorKind};

use http::{HeaderMap, HeaderName, HeaderValue};
use sandcove_wire::secret::Secret;

use crate::keyring::Keyring;
use crate::rules::{HostRule, PLACEHOLDER_END, Rules, SECRET_PLACEHOLDER};

/// Opens the secrets that a rule names, and returns its headers.
///
/// # Errors
/// An error if a secret is not there or cannot be opened, or the value is none of a header. It has no value in it.
pub(crate) fn of_rule(rule: &HostRule, rules: &Rules, keys: &Keyring) -> io::Result<HeaderMap> {
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

fn filled(template: &str, rules: &Rules, keys: &Keyring) -> io::Result<Secret> {
    let mut parts = template.split(SECRET_PLACEHOLDER);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(PLACEHOLDER_END).ok_or(ErrorKind::InvalidData)?;
        let missing = || io::Error::new(ErrorKind::NotFound, format!("there is no secret `{name}`"));
        let secret = rules.secrets.get(name).ok_or_else(missing)?;
        text.push_str(keys.open(&secret.context, &secret.sealed)?.expose());
        text.push_str(rest);
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rules::{AddressRules, NameServers, SealedSecret};

    #[test]
    fn placeholders_become_values_that_do_not_show() {
        let keys = Keyring::generate().unwrap();
        let sealed = |value: &str| SealedSecret {
            context: "c".to_owned(),
            sealed: keys.seal("c", &Secret::new(value)).unwrap(),
        };
        let headers = |value: &str| {
            let rule = HostRule { host: "h".into(), headers: vec![("X-Key".into(), value.into())] };
            let rules = Rules {
                names: vec![],
                servers: NameServers::Trusted(vec![]),
                addresses: AddressRules::default(),
                hosts: vec![rule.clone()],
                secrets: BTreeMap::from([("a".into(), sealed("one")), ("b".into(), sealed("two\nlines"))]),
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
    }
}
