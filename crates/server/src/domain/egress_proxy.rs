//! The proxy of a user's that connections of a sandbox go through: `egressProxy` of its network (contract: control-plane, section 6.3).

use sandcove_isolate::{SealedSecret, Upstream, UpstreamTls, authorities};
use sandcove_wire::secret::Secret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::network::{InvalidNetwork, is_name};

/// Maximum length of the user name and of the password, bytes.
const MAX_CREDENTIAL: usize = 255;
/// Maximum length of the name in the certificate, characters.
const MAX_SERVER_NAME: usize = 253;
/// Maximum length of the certificates of authorities, bytes.
const MAX_CA_CERT: usize = 8192;

/// A checked proxy whose password is not sealed yet.
#[derive(Debug)]
pub(crate) struct EgressProxy {
    upstream: Upstream,
    password: Option<Secret>,
}

/// A proxy as clients send it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    address: String,
    username: Option<String>,
    password: Option<Secret>,
    tls: Option<GivenTls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenTls {
    #[serde(default)]
    enabled: bool,
    server_name: Option<String>,
    ca_cert: Option<String>,
}

impl EgressProxy {
    /// Checks the form of a proxy; `null` is none.
    pub(crate) fn new(given: Value) -> Result<Option<Self>, InvalidNetwork> {
        if given.is_null() {
            return Ok(None);
        }
        // An error of the parser could repeat the password.
        let Ok(given) = Given::deserialize(given) else {
            return refused(
                "'address' must be a text such as proxy.example.com:1080, and all members of their types",
            );
        };
        let Some((host, port)) = address(&given.address) else {
            return refused("'address' must be host:port, such as proxy.example.com:1080");
        };
        for (name, text) in [
            ("username", given.username.as_deref()),
            ("password", given.password.as_ref().map(Secret::expose)),
        ] {
            if text.is_some_and(|text| text.is_empty() || text.len() > MAX_CREDENTIAL) {
                return refused(&format!("'{name}' must have 1 to {MAX_CREDENTIAL} bytes"));
            }
        }
        if given.password.is_some() && given.username.is_none() {
            return refused("'password' needs 'username'");
        }
        let tls = given
            .tls
            .filter(|tls| tls.enabled)
            .map(|tls| UpstreamTls { server_name: tls.server_name, ca_cert: tls.ca_cert });
        check_tls(tls.as_ref())?;
        let upstream = Upstream { host, port, username: given.username, password: None, tls };
        Ok(Some(Self { upstream, password: given.password }))
    }

    /// Name or address of the proxy.
    pub(crate) fn host(&self) -> &str {
        &self.upstream.host
    }

    /// The password, to be sealed.
    pub(crate) fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// The proxy with its sealed password.
    pub(crate) fn sealed(self, password: Option<SealedSecret>) -> Upstream {
        Upstream { password, ..self.upstream }
    }
}

/// The proxy as clients get it back: without password and authorities.
pub(super) fn shown(upstream: &Upstream) -> Value {
    let Upstream { host, port, username, tls, .. } = upstream;
    let mut shown = json!({ "address": format!("{host}:{port}") });
    if let Some(username) = username {
        shown["username"] = json!(username);
    }
    if let Some(tls) = tls {
        shown["tls"] = json!({ "enabled": true });
        if let Some(name) = &tls.server_name {
            shown["tls"]["serverName"] = json!(name);
        }
    }
    shown
}

fn address(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    is_name(host).then(|| (host.to_ascii_lowercase(), port))
}

fn check_tls(tls: Option<&UpstreamTls>) -> Result<(), InvalidNetwork> {
    let Some(tls) = tls else { return Ok(()) };
    if tls.server_name.as_ref().is_some_and(|name| name.len() > MAX_SERVER_NAME || !is_name(name)) {
        return refused("'tls.serverName' must be the name of a host");
    }
    match &tls.ca_cert {
        Some(pem) if pem.len() > MAX_CA_CERT || authorities(pem).is_err() => {
            refused(&format!("'tls.caCert' must be PEM certificates of at most {MAX_CA_CERT} bytes"))
        }
        _ => Ok(()),
    }
}

fn refused<T>(reason: &str) -> Result<T, InvalidNetwork> {
    Err(InvalidNetwork::EgressProxy(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: Value) -> Result<Option<EgressProxy>, String> {
        EgressProxy::new(given).map_err(|error| error.to_string())
    }

    #[test]
    fn the_password_is_not_shown() {
        let given = json!({
            "address": "Proxy.example.com:1080", "username": "me", "password": "pw-value",
            "tls": { "enabled": true, "serverName": "other.example.com" },
        });
        let proxy = check(given).unwrap().unwrap();
        assert!(!format!("{proxy:?}").contains("pw-value"));
        assert_eq!(proxy.password().unwrap().expose(), "pw-value");
        let sealed = SealedSecret { context: "c".into(), sealed: "s1.k.x".into() };
        let upstream = proxy.sealed(Some(sealed));
        assert_eq!(
            shown(&upstream),
            json!({
                "address": "proxy.example.com:1080", "username": "me",
                "tls": { "enabled": true, "serverName": "other.example.com" },
            })
        );
        assert!(check(Value::Null).unwrap().is_none());
        let plain = check(json!({ "address": "192.0.2.1:1", "tls": { "enabled": false } })).unwrap().unwrap();
        assert_eq!(shown(&plain.sealed(None)), json!({ "address": "192.0.2.1:1" }));
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_password() {
        let long = "x".repeat(256);
        for given in [
            json!({}),
            json!("proxy:1080"),
            json!({ "address": "proxy" }),
            json!({ "address": "proxy:0" }),
            json!({ "address": "proxy:65536" }),
            json!({ "address": "http://proxy:1080" }),
            json!({ "address": "[::1]:1080" }),
            json!({ "address": ":1080" }),
            json!({ "address": "p:1", "password": "pw-value" }),
            json!({ "address": "p:1", "username": 1, "password": "pw-value" }),
            json!({ "address": "p:1", "username": "me", "password": ["pw-value"] }),
            json!({ "address": "p:1", "username": long }),
            json!({ "address": "p:1", "username": "me", "password": format!("pw-value{long}") }),
            json!({ "address": "p:1", "username": "" }),
            json!({ "address": "p:1", "tls": { "enabled": true, "serverName": "a b" } }),
            json!({ "address": "p:1", "tls": { "enabled": true, "caCert": "no certificate" } }),
        ] {
            let error = check(given.clone()).unwrap_err();
            assert!(
                error.starts_with("invalid egress proxy: ") && !error.contains("pw-value"),
                "{given}: {error}"
            );
        }
    }
}
