//! Downloads of layers. A transfer that breaks goes on where it stopped; the digest of the whole is verified.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt, BufWriter};
use tokio::time::{sleep, timeout};

use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::Descriptor;
use super::network::IDLE_TIMEOUT;
use super::registry::{Failure, Registry};

/// Attempts in a row without a byte of progress.
const ATTEMPTS: u32 = 5;
/// Attempts in total. A server that sends a few bytes per connection is not worth waiting for.
const MAX_ATTEMPTS: u32 = 50;
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(8);
/// A report is made for each part of this size.
const PART: u64 = 16 << 20;

/// A file that is being downloaded.
struct Partial {
    file: BufWriter<File>,
    hasher: Sha256,
    size: u64,
}

/// Downloads the blob to the empty `file`, and returns it; calls `report` with the number of bytes that have arrived now and then.
pub(super) async fn download(
    registry: &Registry,
    blob: &Descriptor,
    file: std::fs::File,
    report: impl Fn(u64) + Send,
) -> Result<std::fs::File> {
    let file = BufWriter::with_capacity(256 << 10, File::from_std(file));
    let mut partial = Partial { file, hasher: Sha256::new(), size: 0 };
    let (mut without_progress, mut server, mut delay) = (0, 0, FIRST_DELAY);
    let mut last = Error::Cancelled;
    for _ in 0..MAX_ATTEMPTS {
        let before = partial.size;
        match attempt(registry, server, blob, &mut partial, &report).await {
            Ok(()) => return finish(registry, blob, partial).await,
            // Another server may have what this one lacks; the registry is the last one.
            Err(Failure::Final(_)) if server + 1 < registry.servers() => {
                server += 1;
                continue;
            }
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Passing(error)) => {
                tracing::debug!(%error, layer = %blob.digest, size = partial.size, "a download broke");
                last = error;
            }
        }
        if partial.size > before {
            (without_progress, delay) = (0, FIRST_DELAY);
        } else {
            without_progress += 1;
            if without_progress == ATTEMPTS {
                if server + 1 == registry.servers() {
                    return Err(last);
                }
                (server, without_progress) = (server + 1, 0);
            }
        }
        sleep(delay).await;
        delay = (delay * 2).min(MAX_DELAY);
    }
    Err(last)
}

async fn attempt(
    registry: &Registry,
    server: usize,
    blob: &Descriptor,
    partial: &mut Partial,
    report: &(impl Fn(u64) + Send),
) -> std::result::Result<(), Failure> {
    if partial.size == blob.size {
        return Ok(());
    }
    let mut response = registry.blob(server, &blob.digest, partial.size).await?;
    if !continues(&response, partial.size) {
        partial.restart().await.map_err(|error| Failure::Final(registry.disk(error)))?;
        if response.status() != StatusCode::OK {
            // The server sends another part than the one that was asked for.
            response = registry.blob(server, &blob.digest, 0).await?;
        }
    }
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if let Some(length) = length.and_then(|length| length.parse::<u64>().ok())
        && length != blob.size - partial.size
    {
        return Err(Failure::Final(wrong_size(registry, blob, partial.size.saturating_add(length))));
    }
    let broken = |why: String| Failure::Passing(registry.broken(why));
    let mut reported = partial.size / PART;
    loop {
        let frame = timeout(IDLE_TIMEOUT, response.body_mut().frame()).await;
        match frame.map_err(|_| broken("the registry sent nothing for 60 s".to_owned()))? {
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                let size = partial.size + data.len() as u64;
                if size > blob.size {
                    return Err(Failure::Final(wrong_size(registry, blob, size)));
                }
                partial.hasher.update(data);
                let written = partial.file.write_all(data).await;
                written.map_err(|error| Failure::Final(registry.disk(error)))?;
                partial.size = size;
                if size / PART > reported || size == blob.size {
                    reported = size / PART;
                    report(size);
                }
            }
            Some(Err(error)) => return Err(broken(format!("the transfer of a layer broke: {error}"))),
            None if partial.size == blob.size => return Ok(()),
            None => return Err(broken("the transfer of a layer ended early".to_owned())),
        }
    }
}

/// Whether the body of the response is the rest of the blob from `start` on.
fn continues(response: &Response<Incoming>, start: u64) -> bool {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return start == 0;
    }
    let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    let first =
        range.and_then(|range| range.strip_prefix("bytes ")).and_then(|range| range.split('-').next());
    first.and_then(|first| first.parse::<u64>().ok()) == Some(start)
}

impl Partial {
    async fn restart(&mut self) -> std::io::Result<()> {
        self.file.flush().await?;
        self.file.get_mut().set_len(0).await?;
        self.file.get_mut().rewind().await?;
        (self.hasher, self.size) = (Sha256::new(), 0);
        Ok(())
    }
}

async fn finish(registry: &Registry, blob: &Descriptor, mut partial: Partial) -> Result<std::fs::File> {
    partial.file.flush().await.map_err(|error| registry.disk(error))?;
    let found = Digest::from_hasher(partial.hasher);
    if found == blob.digest {
        return Ok(partial.file.into_inner().into_std().await);
    }
    Err(registry.invalid(format!("the layer {} has the digest {found}", blob.digest)))
}

fn wrong_size(registry: &Registry, blob: &Descriptor, size: u64) -> Error {
    registry.invalid(format!(
        "the manifest says that the layer {} has {} bytes, but the registry sends {size}",
        blob.digest, blob.size
    ))
}
