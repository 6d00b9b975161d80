//! Properties that hold for anything that kernels and clients send, as checks over plain bytes. Code in a sandbox can write to the
//! sockets of its kernel. The programs in `fuzz/` search for bytes that violate them; the tests below replay the inputs they have
//! collected.

use bytes::{BufMut, BytesMut};
use tokio_util::codec::Decoder;

use crate::kernel::frame::{Frame, FrameDecoder, Stream};

pub use crate::http::fuzzing::execute_request;
pub use crate::jupyter::fuzzing::jupyter;

/// Checks the frames of a kernel. Byte 0 says how the rest is cut into pieces.
pub fn kernel_frames(input: &[u8]) {
    let [cut, stream @ ..] = input else { return };
    let whole = decode::<FrameDecoder>(stream, stream.len());
    let pieces = decode::<FrameDecoder>(stream, usize::from(*cut));
    assert_eq!(whole, pieces, "the frames depend on how the bytes were cut");
    for frame in whole.0 {
        match frame {
            Frame::Output(Stream::Stdout, text) => comes_back("stdout", &text),
            Frame::Output(Stream::Stderr, text) => comes_back("stderr", &text),
            _ => {}
        }
    }
}

/// Checks that text is read back from a frame of its own.
fn comes_back(kind: &str, text: &str) {
    let framed = format!("{kind} {}\n{text}", text.len());
    let (frames, ended_well) = decode::<FrameDecoder>(framed.as_bytes(), 7);
    assert!(ended_well && matches!(&frames[..], [Frame::Output(_, again)] if again == text));
}

/// Decodes bytes that arrive in pieces of `cut`: what is in them, and whether there was no error.
pub(crate) fn decode<D: Decoder + Default>(stream: &[u8], cut: usize) -> (Vec<D::Item>, bool) {
    let (mut decoder, mut buffer, mut items) = (D::default(), BytesMut::new(), Vec::new());
    for piece in stream.chunks(cut.max(1)) {
        buffer.put_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(_) => return (items, false),
            }
        }
    }
    (items, true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn replay(corpus: &str, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            check(&std::fs::read(input).unwrap());
        }
    }

    #[test]
    fn the_frames_collected_by_fuzzing_hold() {
        replay("kernel_frames", kernel_frames);
    }

    #[test]
    fn the_jupyter_messages_collected_by_fuzzing_hold() {
        replay("jupyter", jupyter);
    }

    #[test]
    fn the_execute_requests_collected_by_fuzzing_hold() {
        replay("execute_request", execute_request);
    }
}
