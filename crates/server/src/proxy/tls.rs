//! TLS to ports inside a sandbox that speak it. Certificates are not verified: every service there belongs to the sandbox,
//! and the connection does not leave this host.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::sandboxes::{Batched, Protocol};

/// Wraps a connection to a port of a sandbox, to speak `protocol` over it.
pub(super) async fn wrap(stream: Batched, protocol: Protocol) -> io::Result<TlsStream<Batched>> {
    static HTTP1: OnceLock<Result<TlsConnector, Error>> = OnceLock::new();
    static HTTP2: OnceLock<Result<TlsConnector, Error>> = OnceLock::new();
    let connector = match protocol {
        Protocol::Http1 => HTTP1.get_or_init(|| connector(b"http/1.1")),
        Protocol::Http2 => HTTP2.get_or_init(|| connector(b"h2")),
    };
    let connector = connector.clone().map_err(io::Error::other)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    connector.connect(name, stream).await
}

fn connector(protocol: &[u8]) -> Result<TlsConnector, Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A verifier that accepts every certificate whose key the service has.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
