//! Properties of ZMTP and Jupyter messages that hold for any bytes a kernel sends.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::demux::Demux;
use super::dialect::Dialect;
use super::message::{Key, Message};
use super::zmtp::{MessageDecoder, encode};
use crate::fuzzing::decode;
use crate::kernel::frame::Frame;

/// Checks a connection to a kernel. Byte 0 says how the rest is cut into pieces, byte 1 the dialect.
pub fn jupyter(input: &[u8]) {
    let [cut, dialect, stream @ ..] = input else { return };
    let (messages, ended_well) = decode::<MessageDecoder>(stream, stream.len());
    assert_eq!(
        (messages.clone(), ended_well),
        decode::<MessageDecoder>(stream, usize::from(*cut)),
        "the messages depend on how the bytes were cut"
    );
    let key = Key::new("secret", "us");
    let mut frames = Vec::new();
    let mut demux = Demux::of([None, Some(Dialect::Java), Some(Dialect::R)][usize::from(dialect % 3)]);
    demux.begin("request".to_owned());
    for parts in &messages {
        let slices: Vec<&[u8]> = parts.iter().map(Bytes::as_ref).collect();
        assert_eq!(decode::<MessageDecoder>(&encode(&slices), 5), (vec![parts.clone()], true));
        // Nothing here is signed, unless the input holds a signature with this key.
        let _ = key.read(parts);
        frames.extend(take(&mut demux, parts));
    }
    frames.extend(demux.stop_waiting());
    let count = |wanted: fn(&Frame) -> bool| frames.iter().filter(|frame| wanted(frame)).count();
    assert!(count(|frame| matches!(frame, Frame::Done { .. })) <= 1, "an execution ended twice");
    assert!(count(|frame| matches!(frame, Frame::Error(_))) <= 1, "an execution failed twice");
    assert!(count(|frame| matches!(frame, Frame::Started(_))) <= 1, "an execution began twice");
    let end = frames.iter().position(|frame| matches!(frame, Frame::Done { .. }));
    assert!(end.is_none_or(|end| end + 1 == frames.len()), "something came after the end");
}

/// Gives a message to the demultiplexer as if it were signed: channel, kind and content are its parts.
fn take(demux: &mut Demux, parts: &[Bytes]) -> Vec<Frame> {
    let [channel, kind, content, ..] = parts else { return Vec::new() };
    let Ok(content) = serde_json::from_slice::<Map<String, Value>>(content) else { return Vec::new() };
    let message =
        Message { kind: String::from_utf8_lossy(kind).into_owned(), parent: "request".to_owned(), content };
    match channel.first() {
        Some(b'r') => demux.replied(&message),
        Some(b'i') => demux.asked(&message),
        _ => demux.published(&message),
    }
}
