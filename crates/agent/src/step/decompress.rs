//! Decompresses archives: gzip, zstd or nothing, recognised by the first bytes. Clients name no format (contract: templates,
//! section 6.4).

use std::io::{self, BufRead, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The other bytes of the magic number of a frame without content; the lowest four bits of the first are free.
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// The decompressed content of `input`.
pub(super) fn open<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = Vec::new();
    input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let (gzip, zstd) = (head.starts_with(&GZIP), is_zstd(&head));
    let input = Cursor::new(head).chain(input);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(input)),
        (_, true) => Box::new(Zstd { source: input, decoder: FrameDecoder::new(), within: false }),
        _ => Box::new(input),
    })
}

fn is_zstd(head: &[u8]) -> bool {
    *head == ZSTD || matches!(head, [0x50..=0x5f, rest @ ..] if *rest == SKIPPABLE)
}

/// A zstd stream of any number of frames, as parallel compressors write it.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether a frame has begun that is not read to its end.
    within: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.within {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let decoded =
                        self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                    decoded.map_err(malformed)?;
                }
                let read = self.decoder.read(buffer)?;
                if read > 0 {
                    return Ok(read);
                }
                self.within = false;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.next_frame()?;
        }
    }
}

impl<R: BufRead> Zstd<R> {
    /// Opens the next frame, or skips it if it has no content.
    fn next_frame(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut self.source) {
            Ok(()) => self.within = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                if skipped < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(malformed(error)),
        }
        Ok(())
    }
}

fn malformed(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read(input: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        open(input)?.read_to_end(&mut content)?;
        Ok(content)
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// A frame with one block that is not compressed.
    fn zstd(content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        let block = (u32::from(length) << 3 | 1).to_le_bytes();
        [&ZSTD[..], &[0x20, length], &block[..3], content].concat()
    }

    #[test]
    fn the_format_is_found_by_the_first_bytes() {
        for content in [&b""[..], b"x", b"hello, hello"] {
            assert_eq!(read(content).unwrap(), content);
            assert_eq!(read(&gzip(content)).unwrap(), content);
            assert_eq!(read(&zstd(content)).unwrap(), content);
        }
    }

    #[test]
    fn streams_of_several_parts_are_one_content() {
        assert_eq!(read(&[gzip(b"a"), gzip(b"b")].concat()).unwrap(), b"ab");
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 2, 0, 0, 0][..], b"??"].concat();
        let frames = [skipped.clone(), zstd(b"a"), zstd(b""), skipped, zstd(b"b")].concat();
        assert_eq!(read(&frames).unwrap(), b"ab");
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        for whole in [gzip(b"some content"), zstd(b"some content")] {
            for end in 5..whole.len() {
                assert!(read(&whole[..end]).is_err(), "{end} of {}", whole.len());
            }
        }
    }
}
