//! Fields of CRIU's messages and images: protobuf messages of integers and bytes.

use std::io;

/// Content of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// An integer, or a truth value.
    Integer(u64),
    /// Text, bytes, or a message.
    Bytes(Vec<u8>),
}

/// Fields of a message in their order, with their numbers.
pub(crate) type Fields = Vec<(u64, Value)>;

/// Decodes a message.
pub(crate) fn decode(mut message: &[u8]) -> io::Result<Fields> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = take_integer(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Integer(take_integer(&mut message)?),
            2 => {
                let length = usize::try_from(take_integer(&mut message)?).map_err(|_| invalid())?;
                let (bytes, rest) = message.split_at_checked(length).ok_or_else(invalid)?;
                message = rest;
                Value::Bytes(bytes.to_vec())
            }
            _ => return Err(invalid()),
        };
        fields.push((tag >> 3, value));
    }
    Ok(fields)
}

/// Encodes a message.
pub(crate) fn encode(fields: &[(u64, Value)]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, value) in fields {
        match value {
            Value::Integer(integer) => {
                put_integer(&mut message, number << 3);
                put_integer(&mut message, *integer);
            }
            Value::Bytes(bytes) => {
                put_integer(&mut message, number << 3 | 2);
                put_integer(&mut message, bytes.len() as u64);
                message.extend_from_slice(bytes);
            }
        }
    }
    message
}

fn take_integer(message: &mut &[u8]) -> io::Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().ok_or_else(invalid)?;
        *message = rest;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Ok(value);
        }
    }
    Err(invalid())
}

fn put_integer(message: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        message.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    message.push(value as u8);
}

/// The error for a message that CRIU does not write.
pub(crate) fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message of CRIU has an unknown form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_after_decoding_and_encoding() {
        let nested = encode(&[(6, Value::Integer(2)), (7, Value::Integer(u64::MAX))]);
        let fields =
            vec![(1, Value::Integer(300)), (3, Value::Bytes(nested)), (13, Value::Bytes(b"id".to_vec()))];
        assert_eq!(decode(&encode(&fields)).unwrap(), fields);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let message = encode(&[(3, Value::Bytes(vec![7; 40])), (1, Value::Integer(1 << 40))]);
        for length in 1..message.len() {
            // A cut between two fields leaves a message.
            if length != 42 {
                assert!(decode(&message[..length]).is_err(), "{length}");
            }
        }
        assert!(decode(&[0x0d, 0, 0, 0, 0]).is_err(), "a type that images do not have");
    }
}
