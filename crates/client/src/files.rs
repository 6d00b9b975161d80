//! Reads and writes files of a sandbox (contract: envd, section 4).

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sandcove_wire::boot::AGENT_PORT;
use tokio::io::AsyncRead;

use crate::error::{Error, Result};
use crate::sandbox::Sandbox;
use crate::upload::streamed;

/// A file, of which the beginning was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStart {
    /// The bytes that were read.
    pub bytes: Bytes,
    /// Length of the whole file, at least one more than was read if that is not all.
    pub length: u64,
}

impl Sandbox {
    /// Reads a file, up to `limit` bytes of it. A relative path starts at the home directory of the default user.
    ///
    /// # Errors
    /// If there is no such file or it cannot be read.
    pub async fn read_file(&self, path: &str, limit: usize) -> Result<FileStart> {
        let target = format!("/files?path={}", percent_encoded(path));
        let response = self.send(AGENT_PORT, Method::GET, &target, Vec::new(), Bytes::new()).await?;
        let length = response.headers().get(CONTENT_LENGTH);
        let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let (mut body, mut bytes) = (response.into_body(), BytesMut::new());
        let mut is_whole = true;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Error::Unreachable {
                url: self.url(AGENT_PORT, &target),
                cause: error.into(),
            })?;
            let data = frame.into_data().unwrap_or_default();
            let room = limit - bytes.len();
            if data.len() > room {
                bytes.extend_from_slice(&data[..room]);
                is_whole = false;
                break;
            }
            bytes.extend_from_slice(&data);
        }
        let read = bytes.len() as u64;
        let length = if is_whole { read } else { length.unwrap_or_default().max(read + 1) };
        Ok(FileStart { bytes: bytes.freeze(), length })
    }

    /// Opens a file, as `user` or else the default user, and returns the answer with its content and length.
    ///
    /// # Errors
    /// If there is no such file or it cannot be read.
    pub async fn open_file(&self, path: &str, user: Option<&str>) -> Result<Response<Incoming>> {
        let target = format!("/files?path={}{}", percent_encoded(path), username(user));
        self.send(AGENT_PORT, Method::GET, &target, Vec::new(), Bytes::new()).await
    }

    /// Writes a file, and creates missing directories above it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn write_file(&self, path: &str, contents: Bytes) -> Result<()> {
        // The server reads the file name from the query; the one in the form only has to exist. The boundary is long
        // and random enough not to be part of a file by chance, and checked in any case.
        let mut boundary = "sandcove-7f9c2ba4e88f827d616045507605853e".to_owned();
        while contains(&contents, boundary.as_bytes()) {
            boundary.push('x');
        }
        let mut body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(&contents);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let target = format!("/files?path={}", percent_encoded(path));
        let value = format!("multipart/form-data; boundary={boundary}");
        let value = HeaderValue::from_str(&value).map_err(|error| Error::Malformed {
            url: self.url(AGENT_PORT, &target),
            reason: error.to_string(),
        })?;
        self.send(AGENT_PORT, Method::POST, &target, vec![(CONTENT_TYPE, value)], body.into()).await.map(drop)
    }

    /// Joins files, as `user` or else the default user: `destination` gets the content of `sources`, one after the other, and the sources are
    /// removed. Large files can so be uploaded in pieces at the same time. Missing directories above the destination are created.
    ///
    /// # Errors
    /// If a source does not exist, or is the destination, or the destination cannot be written. Then the sandbox keeps what it had.
    pub async fn compose_files(&self, sources: &[&str], destination: &str, user: Option<&str>) -> Result<()> {
        let mut request = serde_json::json!({ "source_paths": sources, "destination": destination });
        if let Some(user) = user {
            request["username"] = user.into();
        }
        let kind = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let body = Bytes::from(request.to_string());
        self.send(AGENT_PORT, Method::POST, "/files/compose", kind, body).await.map(drop)
    }

    /// Writes a file with what `source` has until its end, as `user` or else the default user, and creates missing directories above
    /// it. Nothing but the bytes on their way is in memory. With `size`, a source that has more or fewer bytes is an error.
    ///
    /// # Errors
    /// If `source` cannot be read or the file cannot be written. Then the sandbox keeps what it had.
    pub async fn upload(
        &self,
        path: &str,
        user: Option<&str>,
        source: impl AsyncRead + Send + Unpin + 'static,
        size: Option<u64>,
    ) -> Result<()> {
        let target = format!("/files?path={}{}", percent_encoded(path), username(user));
        let kind = vec![(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
        self.send_body(AGENT_PORT, Method::POST, &target, kind, streamed(source, size)).await.map(drop)
    }
}

fn username(user: Option<&str>) -> String {
    user.map(|user| format!("&username={}", percent_encoded(user))).unwrap_or_default()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Percent-encodes text for a value of a query.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_a_query() {
        assert_eq!(percent_encoded("/home/user/a b&c=ü.txt"), "/home/user/a%20b%26c%3D%C3%BC.txt");
    }
}
