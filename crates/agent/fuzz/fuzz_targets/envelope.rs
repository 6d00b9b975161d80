//! Connect framing and the messages in it, as a client may send them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sandcove_agent::rpc::Codec;
use sandcove_agent::rpc::envelope::{Decoder, Encoding};
use sandcove_wire::envd::process::{StartRequest, StreamInputRequest};

fuzz_target!(|input: (bool, Vec<Vec<u8>>)| {
    let (gzip, pieces) = input;
    let mut decoder = Decoder::new(if gzip { Encoding::Gzip } else { Encoding::Identity });
    for piece in &pieces {
        decoder.push(piece);
        while let Ok(Some(payload)) = decoder.next_payload() {
            for codec in [Codec::Json, Codec::Proto] {
                let _ = codec.decode::<StartRequest>(Bytes::clone(&payload));
                let _ = codec.decode::<StreamInputRequest>(Bytes::clone(&payload));
            }
        }
    }
    let _ = decoder.finish();
});
