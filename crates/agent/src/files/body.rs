//! The body of an upload as a stream of bytes, decompressed if necessary.

use std::io::{self, Read};
use std::pin::Pin;

use axum::body::Body;
use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use futures_util::{Stream, StreamExt, stream};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tokio::sync::mpsc;

use super::error::{Error, Result};

/// Bytes decompressed at a time.
const CHUNK: usize = 128 << 10;
/// Limit on the pieces that wait before and after decompression.
const MAX_WAITING: usize = 4;

/// The bytes of an upload.
pub(super) type Bytestream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// Opens the body of a request.
pub(super) fn open(headers: &HeaderMap, body: Body) -> Result<Bytestream> {
    let plain = body
        .into_data_stream()
        .map(|item| item.map_err(|e| Error::bad_request(format!("failed to read the request body: {e}"))));
    match headers
        .get(CONTENT_ENCODING)
        .map(|value| value.as_bytes().trim_ascii().to_ascii_lowercase())
        .as_deref()
    {
        None | Some(b"" | b"identity") => Ok(Box::pin(plain)),
        Some(b"gzip") => Ok(Box::pin(gunzip(plain)?)),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            Err(Error::bad_request(format!(
                "unsupported Content-Encoding `{other}`: supported are gzip, identity"
            )))
        }
    }
}

/// Decompresses on a thread of its own, as a few bytes may become very many.
fn gunzip(
    body: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> Result<impl Stream<Item = Result<Bytes>> + Send> {
    let (compressed, arriving) = mpsc::channel(MAX_WAITING);
    let (plain, leaving) = mpsc::channel(MAX_WAITING);
    // Not one of the runtime's blocking threads, which are few: a client may pause for long between two pieces.
    std::thread::Builder::new()
        .name("gunzip".into())
        .spawn(move || decompress(arriving, &plain))
        .map_err(|e| Error::io("failed to start a thread", &e))?;
    tokio::spawn(async move {
        let mut body = Box::pin(body);
        while let Some(item) = body.next().await {
            if compressed.send(item).await.is_err() {
                break;
            }
        }
    });
    Ok(stream::unfold(Some(leaving), |leaving| async move {
        let mut leaving = leaving?;
        match leaving.recv().await {
            Some(Ok(end)) if end.is_empty() => None,
            Some(Ok(piece)) => Some((Ok(piece), Some(leaving))),
            Some(Err(error)) => Some((Err(error), None)),
            // Content without its end must not pass for the whole content.
            None => Some((Err(Error::bad_request("decompression stopped")), None)),
        }
    }))
}

/// Sends the decompressed `pieces`, then an empty piece, or an error.
fn decompress(pieces: mpsc::Receiver<Result<Bytes>>, plain: &mpsc::Sender<Result<Bytes>>) {
    let mut decoder = MultiGzDecoder::new(Arriving { pieces, current: Bytes::new(), broken: None });
    loop {
        let mut buffer = vec![0; CHUNK];
        let item = match decoder.read(&mut buffer) {
            Ok(read) => {
                buffer.truncate(read);
                Ok(Bytes::from(buffer))
            }
            Err(error) => Err(decoder.get_mut().broken.take().unwrap_or_else(|| {
                Error::bad_request(format!("failed to decompress the request body: {error}"))
            })),
        };
        let ended = !item.as_ref().is_ok_and(|piece| !piece.is_empty());
        if plain.blocking_send(item).is_err() || ended {
            return;
        }
    }
}

struct Arriving {
    pieces: mpsc::Receiver<Result<Bytes>>,
    current: Bytes,
    /// Error of reading the body, if that failed and not decompression.
    broken: Option<Error>,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => self.current = piece,
                Some(Err(error)) => {
                    self.broken = Some(error);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use futures_util::TryStreamExt;
    use http::{HeaderValue, StatusCode};

    use super::*;

    async fn read(coding: &'static str, body: Vec<u8>) -> Result<Vec<u8>> {
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(coding))]);
        let pieces: Vec<Bytes> = open(&headers, body.into())?.try_collect().await?;
        Ok(pieces.concat())
    }

    fn zipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn both_codings_give_the_content() {
        let content = vec![7; 1 << 20];
        assert!(read("identity", content.clone()).await.unwrap() == content);
        assert!(read("gzip", zipped(&content)).await.unwrap() == content);
        let two = [zipped(b"one "), zipped(b"two")].concat();
        assert_eq!(read("gzip", two).await.unwrap(), b"one two");
    }

    #[tokio::test]
    async fn what_cannot_be_decoded_is_a_bad_request() {
        let mut cut = zipped(&[1; 5000]);
        cut.truncate(cut.len() - 6);
        for (coding, body) in [("gzip", b"plain".to_vec()), ("gzip", cut), ("br", Vec::new())] {
            assert_eq!(read(coding, body).await.unwrap_err().status, StatusCode::BAD_REQUEST);
        }
    }
}
