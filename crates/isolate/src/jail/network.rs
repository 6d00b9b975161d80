//! The network of a jail, configured from above: its namespace belongs to the user namespace above, so nobody inside may
//! change it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandcove_wire::boot::METADATA_ADDRESS;

use super::handover::Failure;
use super::metadata;
use crate::sys;

/// Name of the network interface.
const INTERFACE: &str = "eth0";
/// Netmask of a network: it holds two addresses, the sandbox's and the gateway's.
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);
/// Settings that stand for rights over the network, which nobody inside has: any group may `ping`, and any user may listen below
/// port 1024. Group ids beyond 2^31 cannot be named, and none is used inside.
const SETTINGS: [(&str, &str); 2] =
    [("ipv4/ping_group_range", "0 2147483647"), ("ipv4/ip_unprivileged_port_start", "0")];

/// Enters the network namespace of `pid` and configures it. `address` is the sandbox's own and its gateway's.
pub(super) fn configure(pid: u32, address: Option<(Ipv4Addr, Ipv4Addr)>) -> Result<(), Failure> {
    let namespace = open(format!("/proc/{pid}/ns/net"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Failure::at("open the network namespace"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(Failure::at("enter the network namespace"))?;
    for (name, value) in SETTINGS {
        set(name, value).map_err(Failure::at(name))?;
    }
    let socket =
        socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(Failure::at("open a socket"))?;
    let socket = socket.as_fd();
    sys::interface_up(socket, "lo").map_err(Failure::at("turn lo on"))?;
    sys::set_address(socket, "lo:0", METADATA_ADDRESS, Ipv4Addr::BROADCAST)
        .map_err(Failure::at("set the metadata address"))?;
    metadata::set_rules()?;
    let Some((own, gateway)) = address else { return Ok(()) };
    // Sandboxes have IPv4 only. With a link-local address they could fill the host's one table of IPv6 neighbours.
    set(&format!("ipv6/conf/{INTERFACE}/disable_ipv6"), "1").map_err(Failure::at("turn IPv6 off"))?;
    sys::set_address(socket, INTERFACE, own, NETMASK).map_err(Failure::at("set address"))?;
    sys::interface_up(socket, INTERFACE).map_err(Failure::at("turn eth0 on"))?;
    sys::add_default_route(socket, gateway).map_err(Failure::at("set route"))
}

/// Turns on the loopback interface of the network namespace that the calling process is in.
pub(super) fn turn_loopback_on() -> Result<(), Failure> {
    let socket =
        socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(Failure::at("open a socket"))?;
    sys::interface_up(socket.as_fd(), "lo").map_err(Failure::at("turn lo on"))
}

/// Gives the loopback interface of the network namespace that the calling process is in the address that a restored sandbox had.
/// Connections cannot be restored without it; they lead nowhere.
pub(super) fn keep_address(address: Ipv4Addr) -> Result<(), Failure> {
    let socket =
        socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(Failure::at("open a socket"))?;
    sys::set_address(socket.as_fd(), "lo:1", address, Ipv4Addr::BROADCAST)
        .map_err(Failure::at("set the former address"))
}

fn set(name: &str, value: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/net/{name}"), value) {
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
