//! The client of a SOCKS5 proxy (RFC 1928, and RFC 1929 for user names): has the proxy connect to a host.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;

use sandcove_wire::secret::Secret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const VERSION: u8 = 5;
/// Version of the messages with a user name.
const USER_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const BY_USER_NAME: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
/// Texts of the answers of a proxy that has not connected, from the number 1.
const REFUSALS: [&str; 8] = [
    "a general failure",
    "its rules do not allow the connection",
    "the network is unreachable",
    "the host is unreachable",
    "the connection was refused",
    "the connection timed out",
    "it does not support the command",
    "it does not support the type of address",
];

/// The host that a proxy is to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A name of at most 253 characters.
    Name(&'a str),
    Address(Ipv4Addr),
}

/// A user of the proxy.
pub(crate) struct User<'a> {
    pub(crate) name: &'a str,
    pub(crate) password: Secret,
}

/// Has the proxy at the other end of `stream` connect to `target`. Afterwards, `stream` is the connection to it.
///
/// # Errors
/// An error if the proxy does not speak SOCKS5, does not accept the user, or cannot connect. It has no password in it.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    user: Option<User<'_>>,
    target: Target<'_>,
    port: u16,
) -> io::Result<()> {
    authenticate(stream, user).await?;
    stream.write_all(&request(target, port)?).await?;
    stream.flush().await?;
    let [version, answer, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(not_socks());
    }
    if answer != 0 {
        let reason = REFUSALS.get(usize::from(answer) - 1).unwrap_or(&"an unknown failure");
        return Err(io::Error::other(format!("the proxy did not connect: {reason}")));
    }
    // Address and port of the proxy's own end follow, which nobody needs.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => usize::from(stream.read_u8().await?),
        _ => return Err(not_socks()),
    };
    stream.read_exact(&mut vec![0; length + 2]).await.map(drop)
}

async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    user: Option<User<'_>>,
) -> io::Result<()> {
    let methods: &[u8] =
        if user.is_some() { &[NO_AUTHENTICATION, BY_USER_NAME] } else { &[NO_AUTHENTICATION] };
    stream.write_all(&[&[VERSION, methods.len() as u8], methods].concat()).await?;
    stream.flush().await?;
    let denied = |text: &str| Err(io::Error::new(ErrorKind::PermissionDenied, text.to_owned()));
    match (read(stream).await?, user) {
        ([VERSION, NO_AUTHENTICATION], _) => Ok(()),
        ([VERSION, BY_USER_NAME], Some(user)) => {
            let mut message = vec![USER_VERSION];
            for text in [user.name, user.password.expose()] {
                message.push(u8::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?);
                message.extend_from_slice(text.as_bytes());
            }
            stream.write_all(&message).await?;
            stream.flush().await?;
            match read(stream).await? {
                [_, 0] => Ok(()),
                _ => denied("the proxy does not accept the user name and password"),
            }
        }
        ([VERSION, _], None) => denied("the proxy wants a user name"),
        ([VERSION, _], Some(_)) => denied("the proxy wants another way to authenticate"),
        _ => Err(not_socks()),
    }
}

fn request(target: Target<'_>, port: u16) -> io::Result<Vec<u8>> {
    let mut message = vec![VERSION, CONNECT, 0];
    match target {
        Target::Address(address) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        Target::Name(name) => {
            message.extend([NAME, u8::try_from(name.len()).map_err(|_| ErrorKind::InvalidInput)?]);
            message.extend(name.bytes());
        }
    }
    message.extend(port.to_be_bytes());
    Ok(message)
}

async fn read<const N: usize, S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn not_socks() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the proxy does not speak SOCKS5")
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Returns the bytes that a client sends to a proxy that answers with `answers`, and its outcome.
    async fn talk(
        user: Option<(&str, &str)>,
        target: Target<'_>,
        answers: &[u8],
    ) -> (Vec<u8>, io::Result<()>) {
        let (mut client, mut proxy) = duplex(1024);
        proxy.write_all(answers).await.unwrap();
        let user = user.map(|(name, password)| User { name, password: Secret::new(password) });
        let done = connect(&mut client, user, target, 443).await;
        drop(client);
        let mut sent = Vec::new();
        proxy.read_to_end(&mut sent).await.unwrap();
        (sent, done)
    }

    #[tokio::test]
    async fn a_name_is_asked_for_by_name() {
        let (sent, done) = talk(None, Target::Name("a.b"), &[5, 0, 5, 0, 0, 1, 1, 2, 3, 4, 0, 80]).await;
        done.unwrap();
        assert_eq!(sent, [&[5, 1, 0, 5, 1, 0, 3, 3][..], b"a.b", &[1, 187]].concat());
    }

    #[tokio::test]
    async fn a_user_is_named_when_the_proxy_asks() {
        let target = Target::Address(Ipv4Addr::new(9, 8, 7, 6));
        let (sent, done) = talk(Some(("me", "pw")), target, &[5, 2, 1, 0, 5, 0, 0, 3, 1, b'x', 0, 80]).await;
        done.unwrap();
        let expected = [&[5, 2, 0, 2, 1, 2][..], b"me", &[2], b"pw", &[5, 1, 0, 1, 9, 8, 7, 6, 1, 187]];
        assert_eq!(sent, expected.concat());
        let (sent, done) = talk(Some(("me", "pw")), target, &[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await;
        done.unwrap();
        assert!(!sent.windows(2).any(|bytes| bytes == b"pw"), "a proxy that does not ask gets no password");
    }

    #[tokio::test]
    async fn what_is_not_connected_is_an_error_without_the_password() {
        for (user, answers, reason) in [
            (None, &[5, 0xff][..], "wants a user name"),
            (Some(("me", "pw-value")), &[5, 0xff], "another way"),
            (Some(("me", "pw-value")), &[5, 2, 1, 1], "does not accept"),
            (None, &[5, 0, 5, 5, 0, 1], "refused"),
            (None, &[5, 0, 5, 200, 0, 1], "unknown failure"),
            (None, b"HTTP/1.1 400 Bad Request\r\n", "does not speak SOCKS5"),
            (None, &[5, 2], "wants a user name"),
        ] {
            let (_, done) = talk(user, Target::Name("a.b"), answers).await;
            let text = done.unwrap_err().to_string();
            assert!(text.contains(reason) && !text.contains("pw-value"), "{text}");
        }
    }
}
