//! TLS for requests of the server: rustls, with the certificate authorities that the host trusts, including those that its
//! administrator has added.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::SendError;

/// A TLS client that trusts the host's certificate authorities.
#[derive(Default)]
pub(crate) struct Tls {
    /// Created at first use, since most servers make no such requests.
    connector: OnceCell<TlsConnector>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Wraps a connection to `host`, whose certificate has to be valid for that name.
    pub(super) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, SendError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| SendError::Host(host.to_owned()))?;
        let connector = self.connector.get_or_try_init(read_roots).await?;
        connector.connect(name, stream).await.map_err(SendError::Handshake)
    }
}

async fn read_roots() -> Result<TlsConnector, SendError> {
    let read = tokio::task::spawn_blocking(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            tracing::warn!(errors = ?found.errors, "this host trusts no certificate authority: no https address can be called");
        }
        trusting(roots)
    });
    Ok(read.await??)
}

fn trusting(roots: RootCertStore) -> Result<TlsConnector, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use super::*;

    const AUTHORITY: &[u8] = include_bytes!("../../tests/tls/authority.pem");
    const RECEIVER: &[u8] = include_bytes!("../../tests/tls/receiver.pem");
    const KEY: &[u8] = include_bytes!("../../tests/tls/receiver.key");

    /// Answers with what it is sent. Its certificate is for 127.0.0.1 and localhost.
    async fn echo() -> std::net::SocketAddr {
        let chain = vec![CertificateDer::from_pem_slice(RECEIVER).unwrap()];
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(KEY).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = TlsAcceptor::from(Arc::new(config.clone())).accept(stream).await {
                    let mut word = [0; 5];
                    stream.read_exact(&mut word).await.unwrap();
                    stream.write_all(&word).await.unwrap();
                    let _ = stream.shutdown().await;
                }
            }
        });
        address
    }

    fn trusting_the_authority() -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(AUTHORITY).unwrap()).unwrap();
        Tls { connector: OnceCell::new_with(Some(trusting(roots).unwrap())) }
    }

    #[tokio::test]
    async fn a_receiver_with_a_good_certificate_is_reached() {
        let address = echo().await;
        for host in ["127.0.0.1", "localhost"] {
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream = trusting_the_authority().wrap(host, stream).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            let mut word = [0; 5];
            stream.read_exact(&mut word).await.unwrap();
            assert_eq!(&word, b"hello");
        }
    }

    #[tokio::test]
    async fn a_certificate_for_another_name_or_of_a_stranger_is_refused() {
        let address = echo().await;
        let connect = async || TcpStream::connect(address).await.unwrap();
        let other =
            trusting_the_authority().wrap("example.com", connect().await).await.unwrap_err().to_string();
        assert!(other.contains("certificate"), "{other}");
        let stranger = Tls::default().wrap("localhost", connect().await).await.unwrap_err().to_string();
        assert!(stranger.contains("certificate"), "{stranger}");
    }
}
