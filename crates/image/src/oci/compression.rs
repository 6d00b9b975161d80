//! Decompression of layers and archives: gzip, zstd or none, by their first bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Last three bytes of the magic number of a frame of zstd that is to be skipped; the first is 0x50 to 0x5f.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// Memory that a frame of zstd may need, bytes. The programs that make images stay far below it.
const MAX_WINDOW: u64 = 128 << 20;
const BUFFER: usize = 256 << 10;

/// Returns a reader of the uncompressed data.
pub(super) fn decompress<'a>(mut input: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut magic = [0; 4];
    let mut count = 0;
    while count < magic.len() {
        match input.read(&mut magic[count..])? {
            0 => break,
            more => count += more,
        }
    }
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(magic[..count].to_vec()).chain(input));
    Ok(if magic[..2] == GZIP {
        Box::new(MultiGzDecoder::new(whole))
    } else if magic == ZSTD || (magic[0] & 0xf0 == 0x50 && magic[1..] == ZSTD_SKIPPED) {
        Box::new(Zstd::new(whole))
    } else {
        Box::new(whole)
    })
}

/// Whether data that begins like this is compressed.
pub(super) fn is_compressed(magic: [u8; 4]) -> bool {
    magic[..2] == GZIP || magic == ZSTD || (magic[0] & 0xf0 == 0x50 && magic[1..] == ZSTD_SKIPPED)
}

/// Reader of all frames of zstd in its input, one after the other.
struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { input, decoder }
    }

    /// Begins the next frame; false at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.input).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                if !self.next_frame()? {
                    return Ok(0);
                }
                continue;
            }
            self.decoder
                .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(io::Error::other)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        compress_to_vec(data, CompressionLevel::Fastest)
    }

    fn read(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompress(data)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn every_format_is_recognized() {
        let data: Vec<u8> = (0..300_000_u32).flat_map(|i| (i % 1000).to_le_bytes()).collect();
        let (first, second) = data.split_at(100_000);
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for (name, input) in [
            ("plain", data.clone()),
            ("gzip", gzip(&data)),
            ("gzip in two members", [gzip(first), gzip(second)].concat()),
            ("zstd", zstd(&data)),
            ("zstd in two frames", [zstd(first), skipped.clone(), zstd(second), skipped.clone()].concat()),
            ("zstd after a skipped frame", [skipped, zstd(&data)].concat()),
        ] {
            assert!(read(&input).unwrap() == data, "{name}");
        }
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(b"ab").unwrap(), b"ab");
    }

    #[test]
    fn truncated_data_is_an_error() {
        let data = vec![7; 10_000];
        for compressed in [gzip(&data), zstd(&data)] {
            for end in [5, compressed.len() / 2, compressed.len() - 1] {
                assert!(read(&compressed[..end]).is_err(), "{end}");
            }
        }
        assert!(read(&[gzip(&data), b"rubbish".to_vec()].concat()).is_err());
        assert!(read(&[zstd(&data), b"rubbish".to_vec()].concat()).is_err());
    }
}
