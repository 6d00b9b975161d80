//! The builder of a restore: it makes the mounts of a sandbox, runs CRIU beside them, and configures the new namespaces when CRIU has made
//! them. CRIU runs as root of the host, in the spawner's root, without a network, and in the control groups and the cgroup namespace of the
//! sandbox. What it parses was written by our own CRIU (`checkpoint/generation.rs`).

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::mount::{MountAttrFlags, MoveMountFlags, move_mount};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitiesSecureBits, LinkNameSpaceType, UnshareFlags, move_into_link_name_space,
    set_capabilities_secure_bits,
};
use sandcove_wire::boot::LIBEXEC;

use super::builder::{mount_programs, mount_root, mount_volumes, user_namespace};
use super::handover::{
    BuildRequest, CRIU, EMPTY, FOREIGN, Failure, GIVEN, JailKind, LAYERS, Launch, PROGRAMS, Proceed, Reply,
    Restore, SESSIONS, USED,
};
use super::{capabilities, clone, counters, devices, file_systems, masks, network};
use crate::criu::{Message, Program, RestoreOptions, first_error, reply, restore_request};
use crate::packet::{pair, receive, receive_bytes, send, send_bytes};
use crate::precedence;
use crate::sys::{self, Forked};

/// Names below [`GIVEN`], beside one for each volume.
const ROOT: &str = "root";
const DEVICES: &str = "dev";
const SYSTEM: &str = "sys";
const LIBRARY: &str = "programs";
const WORK: &str = "work";
/// Name of CRIU's log in [`WORK`].
const LOG: &str = "restore.log";
/// Name of the file in [`WORK`] with what CRIU prints, and why it could not be started.
const PRINTED: &str = "printed";
/// Descriptors of CRIU: its socket follows the three usual ones.
const SOCKET_FD: u64 = 3;
const LOG_FD: u64 = 4;
const FIRST_FOREIGN_FD: u64 = 5;
/// CRIU's name for the file that is the agent's log.
const AGENT_LOG: &str = "/memfd:log";
/// Steps of CRIU: the namespaces exist; the processes are whole, and a failure still ends them.
const NAMESPACES_EXIST: &str = "setup-namespaces";
const PROCESSES_EXIST: &str = "post-restore";

/// Mounts and files that the builder has made for CRIU.
struct Given {
    /// Paths of mounts, by their paths in the sandbox.
    mounts: BTreeMap<String, String>,
    /// Files of layers, by CRIU's names for them.
    foreign: BTreeMap<String, OwnedFd>,
    images: OwnedFd,
    work: OwnedFd,
    /// Controlling terminals, as text for what is preloaded into CRIU.
    terminals: String,
}

/// Restores the processes of a sandbox and reports to the server over the socket `server`. If the server ends before they run, they end.
pub(super) fn run(request: &BuildRequest, restore: &Restore, server: &OwnedFd) -> Result<(), Failure> {
    // The server puts this process into the sandbox's control group, and CRIU's children stay there.
    let pid = std::process::id();
    send(server, &Reply::Cloned { pid }, &[]).map_err(Failure::at("report the builder"))?;
    let Some((Proceed, fds)) = receive(server).map_err(Failure::at("wait for the control group"))? else {
        return Ok(());
    };
    let log = fds.into_iter().next().ok_or_else(|| failure("wait for the control group", "no log"))?;
    precedence::give_up_oom_protection().map_err(Failure::at("give up the server's protection"))?;
    let own = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWCGROUP;
    sys::unshare(own).map_err(Failure::at("unshare mounts"))?;

    // CRIU tries out on it what the kernel can do.
    network::turn_loopback_on()?;
    let given = make(request, restore)?;
    let Given { mounts, foreign, images, work, terminals } = given;
    let variables =
        [format!("SANDCOVE_OWNER={}", request.id_base), format!("SANDCOVE_TERMINALS={terminals}")];
    let criu = start(mounts, foreign, (&images, &work), log, variables)?;
    serve(request, restore, server, &criu).map_err(|failed| match failed {
        Some(failure) => failure,
        None => failure("restore with CRIU", &reason(&work)),
    })
}

/// Makes the mounts of the sandbox, except those that belong to its network namespace.
fn make(request: &BuildRequest, restore: &Restore) -> Result<Given, Failure> {
    let launch = &restore.launch;
    let (holder, lifeline) = clone::hold_user_namespace(request)?;
    capabilities::own_files_as(request.id_base).map_err(Failure::at("take file identity"))?;
    let volumes = mount_volumes(launch, holder)?;
    let stand_ins = masks::create_stand_ins(request.id_base)?;
    let root = mount_root(launch, holder)?;
    let devices = devices::create(request.id_base).map_err(Failure::at("mount /dev"))?;
    let programs = mount_programs(&launch.programs).map_err(Failure::at("mount the programs"))?;
    drop(lifeline);
    let foreign = open_foreign(restore, launch)?;

    let failed = "put the mounts in place";
    let place = file_systems::create("tmpfs", &[("mode", "755"), ("size", "16m")], MountAttrFlags::empty())
        .map_err(Failure::at(failed))?;
    attach(&place, Path::new(GIVEN)).map_err(Failure::at(failed))?;
    // CRIU's own, which the sandbox never sees.
    devices::create(0).and_then(|own| attach(&own, Path::new("/dev"))).map_err(Failure::at(failed))?;
    let mut mounts = BTreeMap::new();
    let mut put = |tree: Option<&OwnedFd>, name: &str, is_file: bool, inside: Option<&str>| {
        let path = Path::new(GIVEN).join(name);
        if is_file { File::create(&path).map(drop) } else { std::fs::create_dir(&path) }?;
        if let Some(inside) = inside {
            mounts.insert(inside.to_owned(), path.to_string_lossy().into_owned());
        }
        tree.map_or(Ok(()), |tree| attach(tree, &path))
    };
    let mut put_all = || -> io::Result<()> {
        put(Some(&root), ROOT, false, None)?;
        put(Some(&devices), DEVICES, false, Some("/dev"))?;
        put(Some(&programs), LIBRARY, false, Some(LIBEXEC))?;
        put(None, SYSTEM, false, Some("/sys"))?;
        put(None, WORK, false, None)?;
        for (index, (tree, inside)) in stand_ins.iter().zip(masks::STAND_INS).enumerate() {
            put(Some(tree), &format!("stand-in-{index}"), true, Some(inside))?;
        }
        for (index, (tree, volume)) in volumes.iter().zip(&launch.volumes).enumerate() {
            put(Some(tree), &format!("volume-{index}"), false, Some(&volume.target))?;
        }
        Ok(())
    };
    put_all().map_err(Failure::at(failed))?;
    for part in masks::SHOWN_IN_SYS {
        mounts.insert(format!("/sys/{part}"), format!("{GIVEN}/{SYSTEM}/{part}"));
    }
    let directory = |path: &Path| {
        open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(Failure::at(&format!("open `{}`", path.display())))
    };
    let (images, work) = (directory(&restore.images)?, directory(&Path::new(GIVEN).join(WORK))?);
    Ok(Given { mounts, foreign, images, work, terminals: terminals(restore)? })
}

/// The terminals that sessions have, as `TERMINAL:PROCESS,...`, in the order of their numbers. Images of an earlier version have none.
fn terminals(restore: &Restore) -> Result<String, Failure> {
    let failed = "read the terminals of sessions";
    let text = match std::fs::read(restore.images.join(SESSIONS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        text => text.map_err(Failure::at(failed))?,
    };
    let sessions: BTreeMap<u64, u32> = serde_json::from_slice(&text).map_err(Failure::at(failed))?;
    let pairs: Vec<String> =
        sessions.iter().map(|(terminal, process)| format!("{terminal}:{process}")).collect();
    Ok(pairs.join(","))
}

/// Opens the files that processes have mapped from the mounts of a warm process. They are those of the layers, whatever the sandbox has
/// written over them since.
fn open_foreign(restore: &Restore, launch: &Launch) -> Result<BTreeMap<String, OwnedFd>, Failure> {
    let failed = "open the files of a warm process";
    let text = std::fs::read(restore.images.join(FOREIGN)).map_err(Failure::at(failed))?;
    let paths: BTreeMap<String, PathBuf> = serde_json::from_slice(&text).map_err(Failure::at(failed))?;
    if paths.is_empty() {
        return Ok(BTreeMap::new());
    }
    let layers: Vec<String> = (0..launch.layers.len()).map(|index| format!("{LAYERS}/{index}")).collect();
    // An overlay that cannot be written to needs two layers.
    let lower = format!("{}:{EMPTY}", layers.join(":"));
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV;
    let options = [("source", "sandcove"), ("lowerdir", &lower), ("redirect_dir", "follow")];
    let layers = file_systems::create("overlay", &options, flags).map_err(Failure::at(failed))?;
    let programs = format!("{PROGRAMS}/{}", launch.programs);
    let programs =
        open(programs, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(Failure::at(failed))?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let open_file = |path: &Path| match path.strip_prefix(LIBEXEC) {
        Ok(program) => openat2(&programs, program, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), resolve),
        Err(_) => openat2(&layers, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), resolve),
    };
    paths
        .into_iter()
        .map(|(name, path)| {
            let file = open_file(&path).map_err(Failure::at(&format!("open `{}`", path.display())))?;
            Ok((name, file))
        })
        .collect()
}

/// Starts CRIU and sends its request; returns the socket to it. CRIU opens the directories of images and log in this process.
fn start(
    mounts: BTreeMap<String, String>,
    foreign: BTreeMap<String, OwnedFd>,
    (images, work): (&OwnedFd, &OwnedFd),
    log: OwnedFd,
    variables: [String; 2],
) -> Result<OwnedFd, Failure> {
    let (ours, theirs) = pair().map_err(Failure::at("socketpair"))?;
    let (names, foreign): (Vec<String>, Vec<OwnedFd>) = foreign.into_iter().unzip();
    let mut files: BTreeMap<String, u64> = names.into_iter().zip(FIRST_FOREIGN_FD..).collect();
    files.insert(AGENT_LOG.into(), LOG_FD);
    let options = RestoreOptions {
        images: images.as_raw_fd() as u64,
        work: work.as_raw_fd() as u64,
        log: LOG.into(),
        root: format!("{GIVEN}/{ROOT}"),
        mounts,
        files,
    };
    match sys::fork().map_err(Failure::at("fork"))? {
        Forked::Child => {
            let mut fds = vec![theirs, log];
            fds.extend(foreign);
            if let Err(error) = execute(fds, variables) {
                let _ = std::fs::write(Path::new(GIVEN).join(WORK).join(PRINTED), error.to_string());
            }
            sys::exit_now(1)
        }
        Forked::Parent { .. } => {}
    }
    drop(theirs);
    send_bytes(&ours, &restore_request(&options)).map_err(Failure::at("send a request to CRIU"))?;
    Ok(ours)
}

/// Executes CRIU with the descriptors `fds`, from [`SOCKET_FD`] on, and `variables` for what is preloaded into it.
fn execute(fds: Vec<OwnedFd>, variables: [String; 2]) -> io::Result<()> {
    // CRIU owns its files, and waits for its children.
    sys::set_file_identity(Uid::ROOT, Gid::ROOT)?;
    set_capabilities_secure_bits(CapabilitiesSecureBits::empty())?;
    sys::set_reaps_children(true)?;
    let mut command = Program::at(Path::new(CRIU)).command();
    command.extend(["swrk".into(), SOCKET_FD.to_string()]);
    let command: Vec<CString> = command.into_iter().map(CString::new).collect::<Result<_, _>>()?;
    let program = command.first().ok_or(io::ErrorKind::NotFound)?;
    // Standard input is `/dev/null` of the host (`packet::passed_socket`).
    let input = rustix::io::dup(rustix::stdio::stdin())?;
    let printed = File::create(Path::new(GIVEN).join(WORK).join(PRINTED))?;
    let usual = [input, printed.try_clone()?.into(), printed.into()];
    let placed: Vec<OwnedFd> = usual.into_iter().chain(fds).collect();
    let count = placed.len() as u32;
    sys::place_fds(placed)?;
    sys::close_on_exec_from(count)?;
    // As for a new sandbox: its user namespace takes over limits of this process, and belongs to its first id.
    counters::before_clone(JailKind::Sandbox, counters::may_raise()?)?;
    // For `tar`, which unpacks the contents of file systems in memory.
    let others = [format!("PATH={CRIU}/bin"), format!("LD_LIBRARY_PATH={CRIU}/lib")];
    let variables: Vec<CString> =
        variables.into_iter().chain(others).map(CString::new).collect::<Result<_, _>>()?;
    Err(sys::exec(program, &command, &variables))
}

/// Serves CRIU until the processes run. On an error without a failure of this side, CRIU's log has the reason.
fn serve(
    request: &BuildRequest,
    restore: &Restore,
    server: &OwnedFd,
    criu: &OwnedFd,
) -> Result<(), Option<Failure>> {
    let mut failed = None;
    loop {
        let received = receive_bytes(criu).map_err(Failure::at("wait for CRIU")).map_err(Some)?;
        let Some(message) = received else { return Err(failed) };
        match Message::parse(&message).map_err(Failure::at("read a message of CRIU")).map_err(Some)? {
            Message::Restored => {
                return send(server, &Reply::Launched, &[])
                    .map_err(Failure::at("report launch"))
                    .map_err(Some);
            }
            Message::Failed => {
                // CRIU has ended the processes, and none has run.
                if let Some(generation) = &restore.generation {
                    let _ = std::fs::rename(used(generation), generation);
                }
                return Err(failed);
            }
            Message::Reached { step, pid } => {
                let done = match (step.as_str(), pid) {
                    (NAMESPACES_EXIST, Some(pid)) => set_up(request, restore, server, pid),
                    (PROCESSES_EXIST, _) => ask(server, &Reply::Restored).and_then(|()| use_up(restore)),
                    _ => Ok(()),
                };
                let goes_on = done.is_ok();
                failed = failed.or(done.err());
                send_bytes(criu, &reply(goes_on)).map_err(Failure::at("answer CRIU")).map_err(Some)?;
            }
        }
    }
}

/// Configures the namespaces of PID 1, which has the host pid `pid`, and attaches `/sys`, which shows its network.
fn set_up(request: &BuildRequest, restore: &Restore, server: &OwnedFd, pid: u32) -> Result<(), Failure> {
    limit_counters(pid)?;
    ask(server, &Reply::Cloned { pid })?;
    network::configure(pid, restore.launch.address)?;
    if let Some(address) = restore.former_address {
        network::keep_address(address)?;
    }
    let system = masks::create_sys(request.id_base)?;
    // PID 1 has a copy of this process's mounts, which a mount made here now does not get into.
    let mounts = open(format!("/proc/{pid}/ns/mnt"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Failure::at("open the mount namespace"))?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(Failure::at("enter the mount namespace"))?;
    attach(&system, &Path::new(GIVEN).join(SYSTEM)).map_err(Failure::at("attach /sys"))
}

/// Marks the images of a parked sandbox as those of processes that run: they are never restored again, because the files of the sandbox move
/// on. This process does it right before the processes run, so that no end of the server comes between. Images of a snapshot go with files that
/// stay as they are.
fn use_up(restore: &Restore) -> Result<(), Failure> {
    let failed = "mark the images as used";
    let Some(generation) = &restore.generation else { return Ok(()) };
    let used = used(generation);
    match std::fs::remove_dir_all(&used) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Failure::at(failed)(error)),
        _ => {}
    }
    std::fs::rename(generation, &used).map_err(Failure::at(failed))?;
    let directory = generation.parent().unwrap_or(Path::new("/"));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(Failure::at(failed))
}

fn used(generation: &Path) -> PathBuf {
    let mut path = generation.to_owned().into_os_string();
    path.push(USED);
    path.into()
}

/// Reports to the server and waits until it has done its part.
fn ask(server: &OwnedFd, report: &Reply) -> Result<(), Failure> {
    send(server, report, &[]).map_err(Failure::at("report to the server"))?;
    match receive::<Proceed>(server).map_err(Failure::at("wait for the server"))? {
        Some(_) => Ok(()),
        None => Err(failure("wait for the server", "it has given up")),
    }
}

/// Limits what the kernel counts per user, as the first process of a new sandbox does in its user namespace.
fn limit_counters(pid: u32) -> Result<(), Failure> {
    let namespace = user_namespace(pid)?;
    let (report, theirs) = pair().map_err(Failure::at("socketpair"))?;
    match sys::fork().map_err(Failure::at("fork"))? {
        Forked::Child => {
            let limited = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(io::Error::from)
                .and_then(|()| counters::limit_inotify());
            let _ = send(&theirs, &limited.map_err(|error| error.to_string()), &[]);
            sys::exit_now(0);
        }
        Forked::Parent { .. } => drop(theirs),
    }
    match receive::<Result<(), String>>(&report).map_err(Failure::at("limit inotify"))? {
        Some((Ok(()), _)) => Ok(()),
        Some((Err(error), _)) => Err(failure("limit inotify", &error)),
        None => Err(failure("limit inotify", "the process for it has ended")),
    }
}

/// The reason why CRIU failed.
fn reason(work: &OwnedFd) -> String {
    let read = |name: &str| {
        let mut text = String::new();
        let file = openat(work, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        File::from(file).read_to_string(&mut text).map(|_| text)
    };
    match (read(LOG), read(PRINTED)) {
        (Ok(log), _) => first_error(&log),
        (Err(_), Ok(printed)) => printed.trim().to_owned(),
        (Err(error), Err(_)) => format!("it has left no log: {error}"),
    }
}

fn attach(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(Into::into)
}

fn failure(step: &str, reason: &str) -> Failure {
    Failure { step: step.into(), reason: reason.into() }
}
