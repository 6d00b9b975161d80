//! Loop devices for a pool that lives in a file. Numbers: `linux/loop.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::check;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// Binds `image` to a free loop device, which is freed with its last user (by an unmount). Returns the path and the
/// open device, which must stay open until the mount holds it.
pub(crate) fn attach(image: &Path) -> io::Result<(PathBuf, File)> {
    let backing = OpenOptions::new().read(true).write(true).open(image)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    // Another program may take the same free number between the two requests: try again with the next one.
    for _ in 0..64 {
        // SAFETY: takes no argument, returns a number.
        let number = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) }.into())?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        for direct in [LO_FLAGS_DIRECT_IO, 0] {
            // SAFETY: plain data for which all zeros is a valid value.
            let mut config: LoopConfig = unsafe { std::mem::zeroed() };
            config.fd = backing.as_raw_fd() as u32;
            config.info.flags = LO_FLAGS_AUTOCLEAR | direct;
            let name = image.as_os_str().as_encoded_bytes();
            let kept = name.len().min(config.info.file_name.len() - 1);
            config.info.file_name[..kept].copy_from_slice(&name[..kept]);
            // SAFETY: LOOP_CONFIGURE reads one loop_config.
            let result = check(
                unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, std::ptr::from_ref(&config)) }
                    .into(),
            );
            match result {
                Ok(_) => return Ok((path, device)),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => break,
                // Not every file system under the image can do direct I/O.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && direct != 0 => {}
                Err(error) => return Err(error),
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

/// Looks up the loop device that `image` is bound to, if any. The path that the kernel shows for a device is not enough: a container and its
/// host may each have a server with a pool at the same path, and both see all devices.
pub(crate) fn bound_to(image: &Path) -> Option<PathBuf> {
    let own = image.metadata().ok()?;
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|entry| {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        if Path::new(file.trim_end_matches('\n')) != image {
            return None;
        }
        let device = Path::new("/dev").join(entry.file_name());
        let bound = status(&File::open(&device).ok()?).ok()?;
        ((bound.device, bound.inode) == (own.dev(), own.ino())).then_some(device)
    })
}

/// The status of a loop device: the file that it is bound to.
fn status(device: &File) -> io::Result<LoopInfo64> {
    // SAFETY: plain data for which all zeros is a valid value.
    let mut info: LoopInfo64 = unsafe { std::mem::zeroed() };
    let request = LOOP_GET_STATUS64 as _;
    // SAFETY: LOOP_GET_STATUS64 writes one loop_info64.
    check(unsafe { libc::ioctl(device.as_raw_fd(), request, std::ptr::from_mut(&mut info)) }.into())?;
    Ok(info)
}

/// Frees a loop device after the mount that was to hold it has failed.
pub(crate) fn detach(device: &File) -> io::Result<()> {
    // SAFETY: takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD as _) }.into()).map(drop)
}
