//! Requests with a signature of the time: `signatureAuth`.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::error::HttpError;
use super::scope::Scope;
use super::tls::{PemError, pem};
use crate::model::Object;
use crate::template::value::to_number;

/// Milliseconds that a signature is used, unless the configuration says otherwise.
const VALIDITY: f64 = 300_000.0;

/// Reason why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error("there is no private key; set `privateKey` or `privateKeyPath`")]
    NoKey,
    #[error(transparent)]
    Read(#[from] PemError),
    #[error("the private key is not PEM: {0}")]
    Pem(String),
    #[error(
        "the private key is not usable: {0}; write it with `openssl pkcs8 -topk8 -nodes`, RSA with 2048 bits or more, or EC on P-256 or P-384"
    )]
    Key(String),
    #[error("unknown algorithm `{0}`; use SHA256, SHA384 or SHA512, and the one of its size for a key of EC")]
    Algorithm(String),
    #[error("signing failed")]
    Sign,
}

/// The last signature: its time in milliseconds, and its text.
#[derive(Debug, Default)]
pub struct Last(Mutex<Option<(i64, String)>>);

impl Last {
    /// Adds `signature` and `signatureTimestamp` to the variables of a request. A signature is used until a tenth of its time is left,
    /// or `signatureRefreshBufferMs`.
    pub fn sign(&self, config: &Object, scope: &mut Scope<'_>) -> Result<(), HttpError> {
        let Some(settings) = config.get("signatureAuth").and_then(Value::as_object) else { return Ok(()) };
        let number = |key: &str| settings.get(key).map(to_number).filter(|number| number.is_finite());
        let validity = number("signatureValidityMs").unwrap_or(VALIDITY);
        let buffer = number("signatureRefreshBufferMs").unwrap_or((validity * 0.1).floor());
        let now = jiff::Timestamp::now().as_millisecond();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.as_ref().filter(|(at, _)| ((now - at) as f64) + buffer < validity);
        let (at, signature) = match fresh {
            Some(fresh) => fresh.clone(),
            None => last.insert((now, fresh_signature(settings, scope, now)?)).clone(),
        };
        scope.vars.insert("signature".to_owned(), json!(signature));
        scope.vars.insert("signatureTimestamp".to_owned(), json!(at));
        Ok(())
    }
}

fn fresh_signature(settings: &Object, scope: &Scope<'_>, now: i64) -> Result<String, HttpError> {
    let template = settings.get("signatureDataTemplate").and_then(Value::as_str);
    let mut vars = Object::new();
    vars.insert("signatureTimestamp".to_owned(), json!(now));
    let data = scope.templates.render(template.unwrap_or("{{signatureTimestamp}}"), &vars)?;
    let data = data.replace("\\n", "\n");
    let key = key(settings, scope.base)?.ok_or(SignatureError::NoKey)?;
    let algorithm = settings.get("signatureAlgorithm").and_then(Value::as_str).unwrap_or("SHA256");
    let signature = sign(&scope.render(&key)?, digest(algorithm)?, data.as_bytes())?;
    Ok(STANDARD.encode(signature))
}

/// Returns the private key of the settings: in the configuration, in a file, or in Base64.
fn key(settings: &Object, base: &Path) -> Result<Option<String>, SignatureError> {
    // A file goes before a text, other than with certificates.
    let file = settings.keys().find(|key| matches!(key.as_str(), "privateKeyPath" | "keyPath"));
    if let Some(file) = file {
        return Ok(pem(settings, ["", file], base)?);
    }
    if let Some(key) = settings.get("privateKey").and_then(Value::as_str) {
        return Ok(Some(key.to_owned()));
    }
    let encoded = ["certificateContent", "keyContent"].iter().find_map(|key| settings.get(*key)?.as_str());
    let decoded = encoded.map(|text| STANDARD.decode(text.trim())).transpose();
    let decoded = decoded.map_err(|error| SignatureError::Pem(error.to_string()))?;
    Ok(decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// The bits of the digest that a name of OpenSSL's stands for, as in `RSA-SHA256`.
pub fn digest(name: &str) -> Result<u16, SignatureError> {
    let upper = name.to_uppercase().replace("WITHRSAENCRYPTION", "");
    match upper.trim_start_matches("RSA-").replace('-', "").as_str() {
        "SHA256" => Ok(256),
        "SHA384" => Ok(384),
        "SHA512" => Ok(512),
        _ => Err(SignatureError::Algorithm(name.to_owned())),
    }
}

fn sign(key: &str, digest: u16, data: &[u8]) -> Result<Vec<u8>, SignatureError> {
    let random = SystemRandom::new();
    let parsed = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let rsa = match parsed.map_err(|error| SignatureError::Pem(error.to_string()))? {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => {
            let der = der.secret_pkcs8_der();
            let curves = [(256, &ECDSA_P256_SHA256_ASN1_SIGNING), (384, &ECDSA_P384_SHA384_ASN1_SIGNING)];
            for (bits, curve) in curves {
                let Ok(pair) = EcdsaKeyPair::from_pkcs8(curve, der, &random) else { continue };
                if bits != digest {
                    return Err(SignatureError::Algorithm(format!("SHA{digest}")));
                }
                let signature = pair.sign(&random, data).map_err(|_| SignatureError::Sign)?;
                return Ok(signature.as_ref().to_vec());
            }
            RsaKeyPair::from_pkcs8(der)
        }
        _ => return Err(SignatureError::Key("it is not in PKCS #8".to_owned())),
    };
    let pair = rsa.map_err(|error| SignatureError::Key(error.to_string()))?;
    let padding = match digest {
        256 => &RSA_PKCS1_SHA256,
        384 => &RSA_PKCS1_SHA384,
        _ => &RSA_PKCS1_SHA512,
    };
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(padding, &random, data, &mut signature).map_err(|_| SignatureError::Sign)?;
    Ok(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_several_names() {
        for name in ["SHA256", "RSA-SHA256", "sha256", "sha256WithRSAEncryption", "SHA-256"] {
            assert_eq!(digest(name).unwrap(), 256, "{name}");
        }
        assert_eq!(digest("rsa-sha512").unwrap(), 512);
        assert!(digest("md5").is_err());
    }

    #[test]
    fn keys_that_cannot_sign_say_why() {
        assert!(matches!(sign("nothing", 256, b"x"), Err(SignatureError::Pem(_))));
        let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(sign(odd, 256, b"x"), Err(SignatureError::Key(_))));
    }
}
