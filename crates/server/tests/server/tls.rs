//! TLS and HTTP/2 at the listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, KeyPair};
use sandcove_server::tls::{Certificates, LocalFiles, Source};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::proxy::{echo, raw, read_to_end, read_until};
use crate::support::{KEY, Server, WAIT};

/// A server with a certificate of its own authority for `sbx.localhost`.
struct Secure {
    server: Server,
    authority: PathBuf,
    _directory: TempDir,
}

impl Secure {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let source = Source::local(directory.path(), "sbx.localhost").unwrap();
        let certificates = Certificates::new(&source.read().unwrap()).unwrap();
        let authority = LocalFiles::below(directory.path()).certificate();
        let server = Server::with(|config| {
            config.tls = Some(certificates);
            config.header_timeout = Duration::from_secs(3);
        })
        .await;
        let address = echo().await;
        server.fake.listen(49983, address);
        server.fake.listen(8080, address);
        Self { server, authority, _directory: directory }
    }

    async fn connect(&self, name: &str, protocol: &[u8]) -> TlsStream<TcpStream> {
        connect(&self.server, &self.authority, name, protocol).await.unwrap()
    }

    /// A connection of HTTP/2 with TLS.
    async fn h2(&self, name: &str) -> SendRequest<Full<Bytes>> {
        let stream = self.connect(name, b"h2").await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

async fn connect(
    server: &Server,
    authority: &Path,
    name: &str,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Reads an answer of which `text` is the end.
async fn read(stream: &mut TlsStream<TcpStream>, text: &str) -> String {
    let mut seen = String::new();
    tokio::time::timeout(WAIT, async {
        while !seen.contains(text) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "ended after {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    })
    .await
    .unwrap();
    seen
}

#[tokio::test]
async fn one_port_takes_tls_and_plain_and_both_versions_of_http() {
    let secure = Secure::start().await;
    assert_eq!(secure.server.send("GET", "/health", &[], "").await.status, 200);
    let mut old = secure.connect("api.sbx.localhost", b"http/1.1").await;
    assert_eq!(old.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    old.write_all(b"GET /health HTTP/1.1\r\nhost: api.sbx.localhost\r\n\r\n").await.unwrap();
    let answer = read(&mut old, "successful").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\nContent-Length: "), "{answer}");
    // By address, where clients name no host.
    secure.connect("127.0.0.1", b"http/1.1").await;
    let mut new = secure.h2("api.sbx.localhost").await;
    let request = Request::get("https://api.sbx.localhost/health").body(Full::default()).unwrap();
    let answer = new.send_request(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
}

#[tokio::test]
async fn links_to_the_api_are_as_secure_as_the_request_for_them() {
    let secure = Secure::start().await;
    let built = json!({ "name": "linked", "cpuCount": 1, "memoryMB": 128 });
    let reply = secure.server.call("POST", "/v3/templates", built).await;
    let path =
        format!("/templates/{}/files/{}", reply.json()["templateID"].as_str().unwrap(), "a".repeat(64));
    let plain = secure.server.get(&path).await.json();
    assert!(plain["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{plain}");
    let mut sender = secure.h2("api.sbx.localhost").await;
    let request = Request::get(format!("https://api.sbx.localhost:8443{path}")).header("x-api-key", KEY);
    let answer = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert!(body["url"].as_str().unwrap().starts_with("https://api.sbx.localhost:8443/"), "{body}");
}

#[tokio::test]
async fn handshakes_that_go_nowhere_do_not_stay() {
    let secure = Secure::start().await;
    // Nothing, the first byte of a hello, the head of its record, a record that is cut short, and one that is no hello.
    let begun: [&[u8]; 5] =
        [b"", b"\x16", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &[0x16; 64]];
    let mut streams = Vec::new();
    for bytes in begun {
        let mut stream = TcpStream::connect(secure.server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        streams.push(stream);
    }
    // A handshake that is whole, and no request after it.
    let mut silent = secure.connect("localhost", b"h2").await;
    for mut stream in streams {
        read_to_end(&mut stream).await;
    }
    let ended = tokio::time::timeout(WAIT, async { while let Ok(1..) = silent.read(&mut [0; 64]).await {} });
    ended.await.unwrap();
    assert_eq!(secure.server.send("GET", "/health", &[], "").await.status, 200);
}

#[tokio::test]
async fn the_host_of_a_request_decides_and_not_the_name_of_its_connection() {
    let secure = Secure::start().await;
    let (named, asked) = (secure.server.id(json!({})).await, secure.server.id(json!({})).await);
    assert_eq!(secure.server.call("DELETE", &format!("/sandboxes/{named}"), Value::Null).await.code(), 204);
    let mut sender = secure.h2(&format!("8080-{named}.sbx.localhost")).await;
    for (id, status) in [(&named, 502), (&asked, 200)] {
        let uri = format!("https://8080-{id}.sbx.localhost/");
        let answer = sender.send_request(Request::get(uri).body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status);
    }
    // A second host does not get past the first.
    let uri = format!("https://8080-{named}.sbx.localhost/");
    let request = Request::get(uri).header("host", format!("8080-{asked}.sbx.localhost"));
    let answer = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 502);
}

#[tokio::test]
async fn over_tls_too_websockets_are_spliced_and_streams_reset_when_the_sandbox_ends() {
    let secure = Secure::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    secure.server.fake.listen(9000, listener.local_addr().unwrap());
    let id = secure.server.id(json!({})).await;
    let mut socket = secure.connect(&format!("9000-{id}.sbx.localhost"), b"http/1.1").await;
    let head = format!(
        "GET / HTTP/1.1\r\nhost: 9000-{id}.sbx.localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let (mut talking, _) = listener.accept().await.unwrap();
    let asked = read_until(&mut talking, "\r\n\r\n").await;
    assert!(asked.contains("\r\nUpgrade: websocket\r\n"), "{asked}");
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    talking.write_all(switched.as_bytes()).await.unwrap();
    read(&mut socket, "\r\n\r\n").await;
    for _ in 0..100 {
        socket.write_all(&[b'x'; 1000]).await.unwrap();
        talking.read_exact(&mut [0; 1000]).await.unwrap();
        talking.write_all(b"pong").await.unwrap();
        read(&mut socket, "pong").await;
    }

    let mut stream = secure.connect(&format!("8080-{id}.sbx.localhost"), b"http/1.1").await;
    let head = format!("GET /endless HTTP/1.1\r\nhost: 8080-{id}.sbx.localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    read(&mut stream, "tick").await;
    assert_eq!(secure.server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    let cut = tokio::time::timeout(WAIT, async {
        loop {
            match stream.read(&mut [0; 4096]).await {
                Ok(0) => panic!("ended as if it were whole"),
                Ok(_) => {}
                Err(error) => return error.kind(),
            }
        }
    });
    let cut = cut.await.unwrap();
    assert!(
        matches!(cut, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::UnexpectedEof),
        "{cut:?}"
    );
}

/// Writes a certificate for `localhost`, and its key.
fn write_pair(directory: &Path) {
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    // As a tool that renews does it: each file at once, one after the other.
    for (name, text) in [("key.pem", key.serialize_pem()), ("cert.pem", certificate)] {
        std::fs::write(directory.join("new"), text).unwrap();
        std::fs::rename(directory.join("new"), directory.join(name)).unwrap();
    }
}

#[tokio::test]
async fn a_new_certificate_is_used_and_no_connection_notices() {
    let directory = TempDir::new().unwrap();
    write_pair(directory.path());
    let path = directory.path().join("cert.pem");
    let source = Source::files(path.clone(), directory.path().join("key.pem"), None);
    let certificates = Certificates::new(&source.read().unwrap()).unwrap();
    tokio::spawn(certificates.clone().follow(source));
    let server = Server::with(|config| config.tls = Some(certificates)).await;
    server.fake.listen(8080, echo().await);
    let id = server.id(json!({})).await;
    let mut open = connect(&server, &path, "localhost", b"http/1.1").await.unwrap();
    let head = format!("GET /endless HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n");
    open.write_all(head.as_bytes()).await.unwrap();
    read(&mut open, "tick").await;
    // Half of a pair changes nothing.
    std::fs::write(directory.path().join("key.pem"), "none").unwrap();
    write_pair(directory.path());
    let deadline = tokio::time::Instant::now() + WAIT;
    while connect(&server, &path, "localhost", b"http/1.1").await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    read(&mut open, "tick").await;
}

/// Size of the answer to the method `Large`, bytes.
const LARGE: usize = 4 << 20;

/// A service of gRPC's kind: HTTP/2 without TLS, an answer for every message as it comes, and a status after the body. The method `Large`
/// is answered with one long message.
async fn grpc() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serve = service_fn(|request: Request<Incoming>| async move {
                assert_eq!(
                    (request.version(), &request.headers()["te"]),
                    (Version::HTTP_2, &HeaderValue::from_static("trailers"))
                );
                let host = request.uri().authority().unwrap().to_string();
                let is_large = request.uri().path().ends_with("/Large");
                let body = request.into_body();
                let large = is_large.then(|| Ok(Frame::data(Bytes::from(vec![b'x'; LARGE]))));
                let messages =
                    futures_util::stream::unfold((body, false), |(mut body, is_over)| async move {
                        if is_over {
                            return None;
                        }
                        Some(match body.frame().await {
                            Some(frame) => (Ok::<_, hyper::Error>(frame.unwrap()), (body, false)),
                            None => {
                                let status = HeaderMap::from_iter([(
                                    "grpc-status".parse().unwrap(),
                                    "0".parse().unwrap(),
                                )]);
                                (Ok(Frame::trailers(status)), (body, true))
                            }
                        })
                    });
                Ok::<_, hyper::Error>(
                    Response::builder()
                        .header("x-host", host)
                        .body(StreamBody::new(Box::pin(futures_util::stream::iter(large).chain(messages))))
                        .unwrap(),
                )
            });
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new()).http2_only();
                let _ = builder.serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn grpc_goes_to_the_service_over_http_2_with_its_trailers() {
    let secure = Secure::start().await;
    secure.server.fake.listen(50051, grpc().await);
    let id = secure.server.id(json!({})).await;
    let host = format!("50051-{id}.sbx.localhost");
    let stream = secure.connect(&host, b"h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let (messages, taken) = tokio::sync::mpsc::channel::<Bytes>(1);
        let body = futures_util::stream::unfold(taken, |mut taken| async move {
            taken.recv().await.map(|message| (Ok::<_, hyper::Error>(Frame::data(message)), taken))
        });
        let request = Request::post(format!("https://{host}/pkg.Service/Talk"))
            .header("content-type", "application/grpc+proto")
            .header("te", "trailers")
            .body(StreamBody::new(Box::pin(body)))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.headers()["x-host"], host.as_str());
        let mut body = answer.into_body();
        // Each message is answered before the next one is sent.
        for word in ["one", "two", "three"] {
            messages.send(word.into()).await.unwrap();
            let frame = tokio::time::timeout(WAIT, body.frame()).await.unwrap().unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), word);
        }
        drop(messages);
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(body.frame().await.is_none());
    }
}

/// The head of an answer is waited for on one thread, and what follows it is read on another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_grpc_answers_at_once_may_be_long() {
    let secure = Secure::start().await;
    secure.server.fake.listen(50051, grpc().await);
    let id = secure.server.id(json!({})).await;
    let host = format!("50051-{id}.sbx.localhost");
    let mut sender = secure.h2(&host).await;
    for _ in 0..100 {
        let request = Request::post(format!("https://{host}/pkg.Service/Large"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::from("abc"))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let body = tokio::time::timeout(WAIT, answer.into_body().collect()).await.unwrap().unwrap();
        assert_eq!(body.to_bytes().len(), LARGE + 3);
    }
}

/// While a client sends, a service says nothing but how much more it takes. If that is little each time, it says so very often.
#[tokio::test]
#[ignore = "takes a processor for ten seconds, so it runs when no other Rust tests do"]
async fn a_long_upload_of_grpc_is_not_taken_for_an_answer_without_a_head() {
    /// Bytes that the service takes at once, and bytes that are sent: more than 512 KiB of windows are sent back.
    const TAKEN: u32 = 256;
    const SENT: usize = 13 << 20;
    let secure = Secure::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    secure.server.fake.listen(50051, listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serve = service_fn(|request: Request<Incoming>| async move {
                let length = request.into_body().collect().await?.to_bytes().len();
                Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from(length.to_string())))
            });
            let mut builder = auto::Builder::new(TokioExecutor::new()).http2_only();
            builder.http2().initial_stream_window_size(TAKEN);
            tokio::spawn(async move {
                let _ = builder.serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
    let id = secure.server.id(json!({})).await;
    let host = format!("50051-{id}.sbx.localhost");
    let request = Request::post(format!("https://{host}/pkg.Service/Take"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::from(vec![b'x'; SENT]))
        .unwrap();
    let answer = secure.h2(&host).await.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), SENT.to_string());
}

#[tokio::test]
async fn http_2_becomes_http_1_with_host_and_one_cookie_header() {
    let secure = Secure::start().await;
    let id = secure.server.id(json!({})).await;
    let mut sender = secure.h2("localhost").await;
    let host = format!("8080-{id}.sbx.localhost:8443");
    let request = Request::post(format!("https://{host}/a%20b?x=%2F"))
        .header("cookie", "a=1")
        .header("cookie", "b=2; c=3")
        .body(Full::from("hello"))
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let seen: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&seen["uri"], &seen["body"]), (&json!("/a%20b?x=%2F"), &json!("hello")));
    let headers: Vec<&str> = seen["headers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for line in ["cookie: a=1; b=2; c=3".to_owned(), format!("host: {host}")] {
        assert!(headers.contains(&line.as_str()), "{line}: {headers:?}");
    }
}

#[tokio::test]
async fn trailers_reach_clients_that_take_them() {
    let secure = Secure::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    secure.server.fake.listen(9000, listener.local_addr().unwrap());
    let id = secure.server.id(json!({})).await;
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
    let head = format!("GET / HTTP/1.1\r\nhost: 9000-{id}.localhost\r\nte: trailers\r\n\r\n");
    let mut client = raw(&secure.server, &head).await;
    let (mut service, _) = listener.accept().await.unwrap();
    assert!(read_until(&mut service, "\r\n\r\n").await.contains("\r\nTe: trailers\r\n"));
    service.write_all(answer.as_bytes()).await.unwrap();
    let seen = read_until(&mut client, "7\r\n\r\n").await;
    assert!(seen.ends_with("0\r\nX-Sum: 7\r\n\r\n"), "{seen}");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [head.as_slice(), payload].concat()
}

#[tokio::test]
async fn a_flood_of_requests_that_are_taken_back_ends_the_connection() {
    let secure = Secure::start().await;
    let mut stream = TcpStream::connect(secure.server.address).await.unwrap();
    let mut flood = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
    for number in 0..5000u32 {
        // GET http /, and RST_STREAM with CANCEL.
        let stream = 2 * number + 1;
        flood.extend(frame(1, 5, stream, b"\x82\x86\x84\x41\x09localhost"));
        flood.extend(frame(3, 0, stream, &8u32.to_be_bytes()));
    }
    // The server may close before it has read everything.
    let _ = stream.write_all(&flood).await;
    let mut seen = Vec::new();
    let read = tokio::time::timeout(WAIT, async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            seen.extend_from_slice(&buffer[..count]);
        }
    });
    read.await.expect("the connection stays");
    assert_eq!(secure.server.send("GET", "/health", &[], "").await.status, 200);
}

#[tokio::test]
async fn heads_of_http_2_have_a_limit() {
    let secure = Secure::start().await;
    let mut sender = secure.h2("localhost").await;
    let head = |bytes: usize| {
        let value = "x".repeat(bytes);
        Request::get("https://localhost/health").header("x-long", value).body(Full::default()).unwrap()
    };
    assert_eq!(sender.send_request(head(16 << 10)).await.unwrap().status(), 200);
    let refused = sender.send_request(head(40 << 10)).await;
    assert!(refused.is_err() || refused.unwrap().status() == 431);
}
