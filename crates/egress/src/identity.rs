//! Tokens that say which sandbox a request comes from: JWT-SVIDs, signed with a key of the installation. Whoever gets one checks it with the
//! public keys that the server publishes.

use std::io::{self, ErrorKind};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::rules::Identity;

/// Time for which a token is valid, seconds. One is signed for each request.
const LIFETIME: u64 = 300;
/// Number of keys that are kept: the current one, and the one before for those who have not seen a new one yet.
const KEPT: usize = 2;
/// Length of a coordinate of a public key, bytes.
const COORDINATE: usize = 32;

/// Keys that tokens are signed with, the current one first. `Debug` shows none of them.
#[derive(Debug, Clone)]
pub struct SigningKeys {
    /// PKCS#8, base64.
    keys: Vec<Secret>,
}

/// A public key as it is published (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// Type of the key.
    pub kty: String,
    /// Curve of the key.
    pub crv: String,
    /// Algorithm of the signatures.
    pub alg: String,
    /// Use of the key.
    #[serde(rename = "use")]
    pub purpose: String,
    /// Id of the key, its thumbprint (RFC 7638).
    pub kid: String,
    /// First coordinate, base64.
    pub x: String,
    /// Second coordinate, base64.
    pub y: String,
}

impl SigningKeys {
    /// One new key.
    ///
    /// # Errors
    /// An error if the kernel has no random numbers.
    pub fn generate() -> io::Result<Self> {
        Self { keys: Vec::new() }.rotated()
    }

    /// Returns keys with a new current one; the one before stays, older ones go.
    ///
    /// # Errors
    /// An error if the kernel has no random numbers.
    pub fn rotated(mut self) -> io::Result<Self> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| io::Error::other("no random numbers"))?;
        self.keys.insert(0, Secret::new(BASE64.encode(key.as_ref())));
        self.keys.truncate(KEPT);
        Ok(self)
    }

    /// Reads the text of a key file, a line for each key.
    ///
    /// # Errors
    /// An error if a line is no key.
    pub fn parse(text: &str) -> io::Result<Self> {
        let keys = Self { keys: text.lines().map(Secret::new).collect() };
        if keys.keys.is_empty() {
            return Err(wrong());
        }
        keys.public().map(|_| keys)
    }

    /// The text of a key file.
    pub fn text(&self) -> Secret {
        Secret::new(self.keys.iter().map(|key| format!("{}\n", key.expose())).collect::<String>())
    }

    /// The public keys, the current one first.
    ///
    /// # Errors
    /// An error if a key is none.
    pub fn public(&self) -> io::Result<Vec<PublicKey>> {
        self.keys.iter().map(|key| public(&pair(key)?)).collect()
    }

    /// Signs the token `name` of an identity, for a request at this time.
    pub(crate) fn token(&self, identity: &Identity, name: &str) -> io::Result<Secret> {
        let missing = || io::Error::new(ErrorKind::NotFound, format!("the sandbox has no token `{name}`"));
        let audience = identity.audiences.get(name).ok_or_else(missing)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).map_err(|_| io::Error::other("no random numbers"))?;
        let mut claims: Map<String, Value> =
            identity.claims.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        claims.extend([
            ("iss".to_owned(), json!(identity.issuer)),
            ("sub".to_owned(), json!(identity.subject)),
            ("aud".to_owned(), json!(audience)),
            ("iat".to_owned(), json!(now)),
            ("nbf".to_owned(), json!(now)),
            ("exp".to_owned(), json!(now + LIFETIME)),
            ("jti".to_owned(), json!(BASE64.encode(id))),
        ]);
        self.sign(&Value::Object(claims))
    }

    fn sign(&self, claims: &Value) -> io::Result<Secret> {
        let pair = pair(self.keys.first().ok_or_else(wrong)?)?;
        let header = json!({ "alg": "ES256", "kid": public(&pair)?.kid, "typ": "JWT" });
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = pair
            .sign(&SystemRandom::new(), signed.as_bytes())
            .map_err(|_| io::Error::other("a token was not signed"))?;
        Ok(Secret::new(format!("{signed}.{}", BASE64.encode(signature))))
    }
}

fn pair(key: &Secret) -> io::Result<EcdsaKeyPair> {
    let bytes = BASE64.decode(key.expose()).map_err(|_| wrong())?;
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &SystemRandom::new())
        .map_err(|_| wrong())
}

fn public(pair: &EcdsaKeyPair) -> io::Result<PublicKey> {
    // An uncompressed point: a byte that says so, and two coordinates.
    let point = pair.public_key().as_ref().get(1..).filter(|point| point.len() == 2 * COORDINATE);
    let (x, y) = point.ok_or_else(wrong)?.split_at(COORDINATE);
    let (x, y) = (BASE64.encode(x), BASE64.encode(y));
    let thumbprint =
        digest(&SHA256, format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#).as_bytes());
    Ok(PublicKey {
        kty: "EC".into(),
        crv: "P-256".into(),
        alg: "ES256".into(),
        purpose: "sig".into(),
        kid: BASE64.encode(thumbprint),
        x,
        y,
    })
}

fn wrong() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a line is no signing key")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn identity() -> Identity {
        Identity {
            issuer: "https://api.example.com".into(),
            subject: "spiffe://example.com/team/t/sandbox/s".into(),
            claims: BTreeMap::from([("sandbox_id".into(), "s".into())]),
            audiences: BTreeMap::from([("aws".into(), "sts.amazonaws.com".into())]),
        }
    }

    fn json_of(part: &str) -> Value {
        serde_json::from_slice(&BASE64.decode(part).unwrap()).unwrap()
    }

    /// Whether a token was signed with a key.
    fn verifies(token: &str, key: &PublicKey) -> bool {
        let point = [&[4][..], &BASE64.decode(&key.x).unwrap(), &BASE64.decode(&key.y).unwrap()].concat();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(signed.as_bytes(), &BASE64.decode(signature).unwrap())
            .is_ok()
    }

    #[test]
    fn a_token_says_who_asks_whom_and_for_how_long() {
        let keys = SigningKeys::generate().unwrap();
        let token = keys.token(&identity(), "aws").unwrap();
        let parts: Vec<&str> = token.expose().split('.').collect();
        let [header, claims] = [json_of(parts[0]), json_of(parts[1])];
        let [public] = &keys.public().unwrap()[..] else { panic!() };
        assert_eq!(header, json!({ "alg": "ES256", "kid": public.kid, "typ": "JWT" }));
        assert!(verifies(token.expose(), public));
        assert_eq!((&claims["aud"], &claims["sandbox_id"]), (&json!("sts.amazonaws.com"), &json!("s")));
        assert_eq!(claims["sub"], "spiffe://example.com/team/t/sandbox/s");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), LIFETIME);
        let other = keys.token(&identity(), "aws").unwrap();
        assert_ne!(json_of(other.expose().split('.').nth(1).unwrap())["jti"], claims["jti"]);
        let error = keys.token(&identity(), "gcp").unwrap_err().to_string();
        assert_eq!(error, "the sandbox has no token `gcp`");
    }

    #[test]
    fn a_key_is_published_for_one_rotation() {
        let first = SigningKeys::generate().unwrap();
        let token = first.token(&identity(), "aws").unwrap();
        let second = SigningKeys::parse(first.clone().rotated().unwrap().text().expose()).unwrap();
        let published = second.public().unwrap();
        assert_eq!(published.len(), 2);
        assert_eq!(published[1], first.public().unwrap()[0]);
        assert!(!verifies(token.expose(), &published[0]) && verifies(token.expose(), &published[1]));
        assert!(!second.rotated().unwrap().public().unwrap().contains(&published[1]));
        assert!(!format!("{first:?}").contains(first.text().expose().trim()));
        for bad in ["", "AAAA\n", "no key"] {
            assert!(SigningKeys::parse(bad).is_err(), "{bad}");
        }
    }
}
