//! veth pairs: one end on the host, the other created inside the sandbox, because moving an interface between namespaces is
//! slow.

use std::net::Ipv4Addr;

use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth};

use futures_util::TryStreamExt;

use crate::{Error, Result};

/// Group of links that the firewall lets nothing out of. A group of the host's own with this number is not affected: only links of sandboxes are.
pub(super) const CLOSED_GROUP: u32 = 0x5c05;

/// Netlink connections, whose messages the kernel answers one after the other.
#[derive(Clone)]
pub(crate) struct Links {
    handle: Handle,
    /// The connection for what takes long: the kernel waits for every processor to drop an interface.
    deletions: Handle,
    mtu: u32,
}

impl Links {
    /// Opens the connections; needs a running tokio runtime.
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { handle: connect()?, deletions: connect()?, mtu: upstream_mtu().unwrap_or(1500) })
    }

    /// Creates the pair `name` on the host and `eth0` in the network namespace of `pid`, and gives the host's end its
    /// address.
    pub(crate) async fn create(&self, name: &str, pid: u32, address: Ipv4Addr) -> Result<()> {
        let failed = |error| netlink(format!("create network pair {name}"), error);
        let peer = LinkUnspec::new_with_name("eth0").mtu(self.mtu).setns_by_pid(pid).build();
        let pair = LinkMessageBuilder::<LinkVeth>::new(name, "eth0")
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .mtu(self.mtu)
            .up()
            .build();
        let mut added = self.handle.link().add(pair.clone()).execute().await;
        if matches!(&added, Err(error) if errno(error) == Some(libc::EEXIST)) {
            // The pair of the slot's last sandbox, whose namespace the kernel has not deleted yet.
            self.delete(name).await?;
            added = self.handle.link().add(pair).execute().await;
        }
        added.map_err(failed)?;
        // Sandboxes have IPv4 only, so this end has no use for the other. A kernel without it has no such file.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let index = self.index(name).await?.ok_or_else(|| Error::Kernel {
            action: format!("find the new network pair {name}"),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        self.handle.address().add(index, address.into(), 30).execute().await.map_err(failed)
    }

    /// Puts the host's end of the pair into the group of links that the firewall lets nothing out of, or takes it out of the group. This is one
    /// message to the kernel, where rules of its own would take a program and a transaction.
    pub(crate) async fn set_closed(&self, name: &str, closed: bool) -> Result<()> {
        let group = if closed { CLOSED_GROUP } else { 0 };
        let message =
            LinkUnspec::new_with_name(name).append_extra_attribute(LinkAttribute::Group(group)).build();
        let failed = |error| netlink(format!("set the group of network pair {name}"), error);
        self.handle.link().set(message).execute().await.map_err(failed)
    }

    /// Deletes the pair; a missing one is no error.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let Some(index) = self.index(name).await? else { return Ok(()) };
        match self.deletions.link().del(index).execute().await {
            Err(error) if errno(&error) != Some(libc::ENODEV) => {
                Err(netlink(format!("delete network pair {name}"), error))
            }
            _ => Ok(()),
        }
    }

    /// Lists the names of host interfaces that start with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut links = self.handle.link().get().execute();
        while let Some(link) =
            links.try_next().await.map_err(|error| netlink("list interfaces".into(), error))?
        {
            found.extend(link.attributes.into_iter().filter_map(|attribute| match attribute {
                LinkAttribute::IfName(name) if name.starts_with(prefix) => Some(name),
                _ => None,
            }));
        }
        Ok(found)
    }

    async fn index(&self, name: &str) -> Result<Option<u32>> {
        let found = self.handle.link().get().match_name(name.to_owned()).execute().try_next().await;
        match found {
            Ok(link) => Ok(link.map(|link| link.header.index)),
            Err(error) if errno(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(netlink(format!("find interface {name}"), error)),
        }
    }
}

fn connect() -> Result<Handle> {
    let (connection, handle, _) = rtnetlink::new_connection()
        .map_err(|source| Error::Kernel { action: "open a netlink socket".into(), source })?;
    tokio::spawn(connection);
    Ok(handle)
}

fn errno(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().raw_os_error(),
        _ => None,
    }
}

fn netlink(action: String, error: rtnetlink::Error) -> Error {
    let source = match errno(&error) {
        Some(code) => std::io::Error::from_raw_os_error(code),
        None => std::io::Error::other(error.to_string()),
    };
    Error::Kernel { action, source }
}

/// Gateway of the default route.
pub(super) fn default_gateway() -> Option<Ipv4Addr> {
    let (_, gateway) = default_route()?;
    // As the kernel keeps it: in the order of the network.
    u32::from_str_radix(&gateway, 16).ok().map(|gateway| gateway.to_ne_bytes().into())
}

/// MTU of the interface of the default route: a larger one inside would lose packets behind tunnels.
fn upstream_mtu() -> Option<u32> {
    let (interface, _) = default_route()?;
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

/// Interface and gateway of the default route, as the kernel writes them.
fn default_route() -> Option<(String, String)> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then_some((interface.to_owned(), fields.next()?.to_owned()))
    })
}
