//! The port of the metadata address. Clients ask `192.0.2.1:80`, but a program that listens on port 80 of all addresses is refused while another
//! listens on that port of one. So the agent listens on a port of its own, and the kernel changes the port in packets between the
//! two: two rules in the network namespace of the sandbox, which know no connections and so leave all others alone.

use std::io;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use sandcove_wire::boot::{METADATA_ADDRESS, METADATA_PORT};

use super::handover::Failure;

/// The port that clients ask.
const HTTP_PORT: u16 = 80;
/// Name of table and chain.
const NAME: &str = "metadata";

/// Messages of nfnetlink and their parts, as in `linux/netfilter/nfnetlink.h` and `nf_tables.h`.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NF_TABLES: u16 = 10;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const NLMSG_ERROR: u16 = 2;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_ACKNOWLEDGE: u16 = 0x4;
const FLAG_CREATE: u16 = 0x400;
const FLAG_APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
const FAMILY_IPV4: u8 = 2;
const HOOK_OUTPUT: u32 = 3;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const META_PROTOCOL: u32 = 16;
const REGISTER: u32 = 1;
const TCP: u8 = 6;
/// Offsets in the headers of IPv4 and TCP, bytes.
const SOURCE_ADDRESS: u32 = 12;
const DESTINATION_ADDRESS: u32 = 16;
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const TCP_CHECKSUM: u32 = 16;

/// Sets the rules in the network namespace that the calling process is in.
pub(super) fn set_rules() -> Result<(), Failure> {
    send(&batch()).map_err(Failure::at("set the rules of the metadata address"))
}

/// A transaction that creates a table with a chain for packets of the sandbox's programs, and a rule for each direction.
fn batch() -> Vec<u8> {
    let mut batch = Vec::with_capacity(1024);
    message(&mut batch, BATCH_BEGIN, 0, |_| {});
    message(&mut batch, NEW_TABLE, FLAG_CREATE, |body| text(body, 1, NAME));
    message(&mut batch, NEW_CHAIN, FLAG_CREATE, |body| {
        text(body, 1, NAME);
        text(body, 3, NAME);
        nested(body, 4, |hook| {
            number(hook, 1, HOOK_OUTPUT);
            number(hook, 2, 0);
        });
        text(body, 7, "filter");
    });
    rule(&mut batch, [DESTINATION_ADDRESS, DESTINATION_PORT], [HTTP_PORT, METADATA_PORT]);
    rule(&mut batch, [SOURCE_ADDRESS, SOURCE_PORT], [METADATA_PORT, HTTP_PORT]);
    message(&mut batch, BATCH_END, 0, |_| {});
    batch
}

/// A rule that changes the port in TCP packets with the metadata address.
fn rule(batch: &mut Vec<u8>, [address_at, port_at]: [u32; 2], [from, to]: [u16; 2]) {
    message(batch, NEW_RULE, FLAG_CREATE | FLAG_APPEND | FLAG_ACKNOWLEDGE, |body| {
        text(body, 1, NAME);
        text(body, 2, NAME);
        nested(body, 4, |expressions| {
            load(expressions, NETWORK_HEADER, address_at, 4);
            compare(expressions, &METADATA_ADDRESS.octets());
            expression(expressions, "meta", |data| {
                number(data, 1, REGISTER);
                number(data, 2, META_PROTOCOL);
            });
            compare(expressions, &[TCP]);
            load(expressions, TRANSPORT_HEADER, port_at, 2);
            compare(expressions, &from.to_be_bytes());
            expression(expressions, "immediate", |data| {
                number(data, 1, REGISTER);
                nested(data, 2, |value| attribute(value, 1, &to.to_be_bytes()));
            });
            expression(expressions, "payload", |data| {
                number(data, 5, REGISTER);
                number(data, 2, TRANSPORT_HEADER);
                number(data, 3, port_at);
                number(data, 4, 2);
                // The kind of TCP's checksum, and where it is.
                number(data, 6, 1);
                number(data, 7, TCP_CHECKSUM);
            });
        });
    });
}

/// Loads bytes of a header into the register.
fn load(expressions: &mut Vec<u8>, header: u32, offset: u32, length: u32) {
    expression(expressions, "payload", |data| {
        number(data, 1, REGISTER);
        number(data, 2, header);
        number(data, 3, offset);
        number(data, 4, length);
    });
}

/// Ends the rule unless the register has this value.
fn compare(expressions: &mut Vec<u8>, value: &[u8]) {
    expression(expressions, "cmp", |data| {
        number(data, 1, REGISTER);
        number(data, 2, 0);
        nested(data, 3, |part| attribute(part, 1, value));
    });
}

fn expression(expressions: &mut Vec<u8>, name: &str, data: impl FnOnce(&mut Vec<u8>)) {
    nested(expressions, 1, |element| {
        text(element, 1, name);
        nested(element, 2, data);
    });
}

fn message(batch: &mut Vec<u8>, kind: u16, flags: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = batch.len();
    let (family, resource) = match kind {
        BATCH_BEGIN | BATCH_END => (0, NF_TABLES),
        _ => (FAMILY_IPV4, 0),
    };
    // The length follows; sequence number and sender are not used.
    batch.extend([0; 4]);
    batch.extend(kind.to_ne_bytes());
    batch.extend((flags | FLAG_REQUEST).to_ne_bytes());
    batch.extend([0; 8]);
    batch.extend([family, 0]);
    batch.extend(resource.to_be_bytes());
    body(batch);
    let length = u32::try_from(batch.len() - start).unwrap_or(u32::MAX);
    batch[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

fn nested(to: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    content(&mut value);
    attribute(to, kind | NESTED, &value);
}

fn text(to: &mut Vec<u8>, kind: u16, value: &str) {
    attribute(to, kind, &[value.as_bytes(), b"\0"].concat());
}

fn number(to: &mut Vec<u8>, kind: u16, value: u32) {
    attribute(to, kind, &value.to_be_bytes());
}

/// An attribute of a message, filled up to a multiple of four bytes.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Sends a transaction, and waits for the answers to its rules: the kernel takes all of it or nothing.
fn send(batch: &[u8]) -> io::Result<()> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER))?;
    sendto(&socket, batch, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let mut acknowledged = 0;
    while acknowledged < 2 {
        let (read, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        for outcome in outcomes(&answer[..read.min(answer.len())]) {
            match outcome {
                0 => acknowledged += 1,
                error => return Err(io::Error::from_raw_os_error(-error)),
            }
        }
    }
    Ok(())
}

/// The error numbers in answers of the kernel, negative, or 0.
fn outcomes(mut answer: &[u8]) -> Vec<i32> {
    let mut outcomes = Vec::new();
    while let (Some(length), Some(kind)) = (answer.first_chunk::<4>(), answer.get(4..6)) {
        let length = u32::from_ne_bytes(*length) as usize;
        if kind == NLMSG_ERROR.to_ne_bytes()
            && let Some(error) = answer.get(16..20).and_then(|bytes| bytes.first_chunk::<4>())
        {
            outcomes.push(i32::from_ne_bytes(*error));
        }
        let Some(rest) = answer.get(length.next_multiple_of(4).max(16)..) else { break };
        answer = rest;
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_kernel_are_read() {
        let mut answer = Vec::new();
        for error in [0_i32, -2] {
            answer.extend(36_u32.to_ne_bytes());
            answer.extend(NLMSG_ERROR.to_ne_bytes());
            answer.extend([0; 10]);
            answer.extend(error.to_ne_bytes());
            answer.extend([0; 16]);
        }
        assert_eq!(outcomes(&answer), [0, -2]);
        assert_eq!(outcomes(&answer[..30]), [0]);
        assert!(outcomes(&[0; 40]).is_empty());
        assert!(outcomes(&[]).is_empty());
    }
}
