//! Properties that hold for anything a client sends, as checks over plain bytes. The programs in `fuzz/` search for bytes that
//! violate them; the tests below replay the inputs they have collected.

use std::path::{Component, Path};

use bytes::Bytes;
use sandcove_wire::envd::filesystem::{MoveRequest, WatchDirRequest};
use sandcove_wire::envd::process::{SendInputRequest, StartRequest, StreamInputRequest};

use crate::account::Accounts;
use crate::path::{clean, resolve};
use crate::rpc::envelope::{Decoder, Encoding, MAX_MESSAGE, write_message};
use crate::rpc::{Code, Codec, Message};

pub use crate::files::fuzzing::{file_headers, multipart};
pub use crate::step::fuzzing::archive;

/// Checks Connect framing and the messages in it. Byte 0 selects the encoding, byte 1 how the rest is cut into pieces.
pub fn envelope(input: &[u8]) {
    let [mode, cut, stream @ ..] = input else { return };
    let encoding = if mode & 1 == 0 { Encoding::Identity } else { Encoding::Gzip };
    let (payloads, outcome) = unwrap_all(encoding, [stream]);
    let (cut_payloads, cut_outcome) = unwrap_all(encoding, stream.chunks(usize::from(*cut).max(1)));
    assert_eq!(payloads, cut_payloads, "payloads depend on how the bytes were cut");
    assert_eq!(outcome, cut_outcome, "the outcome depends on how the bytes were cut");
    assert!(payloads.iter().all(|payload| payload.len() <= MAX_MESSAGE));
    if encoding == Encoding::Identity {
        // Nothing is added or lost: the payloads in new envelopes are the bytes they came from.
        let mut again = Vec::new();
        for payload in &payloads {
            again.push(0);
            again.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
            again.extend_from_slice(payload);
        }
        assert!(stream.starts_with(&again));
        let left = stream.get(again.len()).is_some_and(|flags| flags & 2 == 0);
        assert!(!left || outcome.is_err(), "an unfinished envelope went unnoticed");
    }
    for payload in payloads {
        for codec in [Codec::Json, Codec::Proto] {
            comes_back::<StartRequest>(codec, &payload);
            comes_back::<StreamInputRequest>(codec, &payload);
            comes_back::<SendInputRequest>(codec, &payload);
            comes_back::<WatchDirRequest>(codec, &payload);
            comes_back::<MoveRequest>(codec, &payload);
        }
    }
}

/// Decodes a stream that arrives in `pieces`: its payloads, and how it ends.
fn unwrap_all<'a>(
    encoding: Encoding,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Bytes>, Result<(), Code>) {
    let mut decoder = Decoder::new(encoding);
    let mut payloads = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_payload() {
                Ok(Some(payload)) => payloads.push(payload),
                Ok(None) => break,
                Err(error) => return (payloads, Err(error.code)),
            }
        }
    }
    (payloads, decoder.finish().map_err(|error| error.code))
}

/// Checks that a valid message is read back from an envelope of its own, in either encoding.
fn comes_back<M: Message + PartialEq + std::fmt::Debug>(codec: Codec, payload: &Bytes) {
    let Ok(message) = codec.decode::<M>(payload.clone()) else { return };
    for codec in [Codec::Json, Codec::Proto] {
        let mut framed = Vec::new();
        assert!(write_message(codec, &message, &mut framed).is_ok(), "{message:?} cannot be written");
        let (payloads, outcome) = unwrap_all(Encoding::Identity, [framed.as_slice()]);
        assert_eq!((payloads.len(), outcome), (1, Ok(())));
        let again = codec.decode::<M>(payloads.concat().into());
        assert!(again.is_ok_and(|again| again == message), "{message:?} does not come back as {codec:?}");
    }
}

/// Checks paths of requests. The first line is the home directory, the second the default directory, the rest the path.
pub fn path(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.splitn(3, '\n');
    let (Some(home), Some(workdir), Some(path)) = (parts.next(), parts.next(), parts.next()) else { return };
    let once = clean(path);
    assert_eq!(clean(&once), once);
    assert_eq!(once.starts_with('/'), path.starts_with('/'));
    assert_eq!(walk(path), walk(&once), "cleaning leads elsewhere");
    let accounts = Accounts::parse(&format!("user:x:1000:1000::{home}:/bin/sh"), "");
    let Some(account) = accounts.lookup("user").filter(|account| account.home.starts_with('/')) else {
        return;
    };
    let Ok(resolved) = resolve(path, &account, Some(workdir)) else {
        let refusable = |path: &str| path.starts_with('~') || path.contains('\0');
        assert!(refusable(path) || path.is_empty() && refusable(workdir), "{path:?} was refused");
        return;
    };
    assert!(resolved.starts_with('/'));
    assert!(!path.contains('\0'));
    let below_home = path.strip_prefix('~').map_or(path, |rest| rest.trim_start_matches('/'));
    if path.starts_with('/') {
        assert_eq!(resolved, path, "an absolute path was changed");
    } else if !path.is_empty() {
        assert_eq!(resolved, clean(&resolved));
        if walk(below_home).0 == 0 {
            assert!(
                Path::new(&resolved).starts_with(clean(&account.home)),
                "{path:?} left home: {resolved:?}"
            );
        }
    }
}

/// Follows a path by its text alone: the number of directories up from its start, and the names down from there.
fn walk(path: &str) -> (usize, Vec<&str>) {
    let (mut up, mut down) = (0, Vec::new());
    let mut absolute = false;
    for component in Path::new(path).components() {
        match component {
            Component::RootDir => absolute = true,
            Component::Normal(name) => down.extend(name.to_str()),
            Component::ParentDir if down.pop().is_none() => up += usize::from(!absolute),
            _ => {}
        }
    }
    (up, down)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replays every input kept for `target`.
    fn replay(target: &str, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            check(&std::fs::read(input).unwrap());
        }
    }

    #[test]
    fn the_envelopes_collected_by_fuzzing_hold() {
        replay("envelope", envelope);
    }

    #[test]
    fn the_archives_collected_by_fuzzing_hold() {
        replay("archive", archive);
    }

    #[test]
    fn the_paths_collected_by_fuzzing_hold() {
        replay("path", path);
    }

    #[test]
    fn the_file_headers_collected_by_fuzzing_hold() {
        replay("file_headers", file_headers);
    }

    #[test]
    fn the_multipart_bodies_collected_by_fuzzing_hold() {
        replay("multipart", multipart);
    }
}
