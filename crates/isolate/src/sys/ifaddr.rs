//! Addresses and routes of the calling process's network namespace, by the classic ioctls: PID 1 needs three requests on one
//! socket, and no netlink exchange.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn sockaddr(address: Ipv4Addr) -> libc::sockaddr {
    let v4 = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: sockaddr_in and sockaddr are both 16 bytes of plain data, and the kernel reads one as the other.
    unsafe { std::mem::transmute(v4) }
}

fn ioctl<T>(socket: BorrowedFd<'_>, code: libc::c_ulong, argument: &T) -> io::Result<()> {
    // SAFETY: each code used in this file takes a pointer to the structure type it is called with and only reads it.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), code as _, std::ptr::from_ref(argument)) }.into())
        .map(drop)
}

/// Gives `interface` (or its alias `name:label`) an address.
pub(crate) fn set_address(
    socket: BorrowedFd<'_>,
    interface: &str,
    address: Ipv4Addr,
    netmask: Ipv4Addr,
) -> io::Result<()> {
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_addr = sockaddr(address);
    ioctl(socket, libc::SIOCSIFADDR, &request)?;
    request.ifr_ifru.ifru_netmask = sockaddr(netmask);
    ioctl(socket, libc::SIOCSIFNETMASK, &request)
}

/// Brings `interface` up.
pub(crate) fn interface_up(socket: BorrowedFd<'_>, interface: &str) -> io::Result<()> {
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(socket, libc::SIOCSIFFLAGS, &request)
}

/// Adds a default route through `gateway`.
pub(crate) fn add_default_route(socket: BorrowedFd<'_>, gateway: Ipv4Addr) -> io::Result<()> {
    // SAFETY: rtentry is plain data for which all zeros is a valid value.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = sockaddr(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = sockaddr(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = sockaddr(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    ioctl(socket, libc::SIOCADDRT, &route)
}
