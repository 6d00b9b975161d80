//! Processes that unpack images, one for each import. What a stranger has put into a layer is decoded there and not by the host's root:
//! the process owns the tree of its image, which is all that it sees, and nothing else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

use rustix::fs::{CWD, Mode};
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount, open_tree,
    unmount,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, chdir, pivot_root, setrlimit, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags, clear_ambient_capability_set,
    move_into_link_name_space, set_capabilities, set_no_new_privs,
};

use crate::jail::{self, BuildRequest, Failure, JailKind};
use crate::sys::{self, MountRights, RefusedCalls};
use crate::{net, precedence};

/// Where the tree is attached before it becomes the root directory.
const NEW_ROOT: &str = "/tmp";
/// Address space of a process: it remembers some bytes of each entry, and a window of a decoder may take 128 MiB.
const MAX_MEMORY: u64 = 2 << 30;
/// Descriptors of a process: a tree has 256 levels, and walking it takes two for each.
const MAX_DESCRIPTORS: u64 = 1024;

/// Capabilities over the files of the tree, with the reason for each. They apply within the process's user namespace, which has nothing
/// but these files.
const KEPT: [(CapabilitySet, &str); 5] = [
    (CapabilitySet::CHOWN, "files of an image have many owners"),
    (CapabilitySet::DAC_OVERRIDE, "entries below directories that their owner may not write to"),
    (CapabilitySet::FOWNER, "permissions, times and attributes of files that have an owner already"),
    (CapabilitySet::FSETID, "set-group-id bits of files of other groups"),
    (CapabilitySet::SETFCAP, "capabilities of programs"),
];

/// Starts processes that unpack images. Clones start the same.
#[derive(Debug, Clone)]
pub struct Unpackers {
    /// The `sandcove` program. It is opened once: a later version of it speaks another language.
    program: Arc<File>,
    log_refused_calls: bool,
    orders: Sender<Order>,
}

/// A process to be started.
struct Order {
    command: Command,
    started: SyncSender<io::Result<Child>>,
}

impl Unpackers {
    /// The processes run `program`.
    pub(crate) fn new(program: &Path, log_refused_calls: bool) -> io::Result<Self> {
        let (orders, received) = channel::<Order>();
        // The kernel ends a process when the thread ends that has started it; this one lasts as long as the host process.
        thread::Builder::new().name("unpackers".to_owned()).spawn(move || {
            for Order { mut command, started } in received {
                // Whoever has ordered it waits for it.
                let _ = started.send(command.spawn());
            }
        })?;
        Ok(Self { program: Arc::new(File::open(program)?), log_refused_calls, orders })
    }

    /// Starts a process whose root directory is `tree`. It serves at its standard input and output, and ends with this process.
    ///
    /// # Errors
    /// When the kernel refuses a new process.
    pub fn start(&self, tree: &Path) -> io::Result<Child> {
        // The new process has the descriptor until the program replaces it.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        std::os::unix::process::CommandExt::arg0(&mut command, "sandcove");
        command.arg("__unpack").arg(tree).args(self.log_refused_calls.then_some("--log-refused-calls"));
        command.env_clear().current_dir("/");
        // What it prints would be a stranger's words in the log, should the stranger have it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let (started, child) = sync_channel(1);
        let gone = || io::Error::other("the thread that starts processes has ended");
        self.orders.send(Order { command, started }).map_err(|_| gone())?;
        child.recv().map_err(|_| gone())?
    }
}

/// Leaves everything of the host but the directory `tree`, for good: it becomes the root directory of the calling process, which keeps
/// rights over the files in it only. With `log_refused_calls`, the kernel logs calls that it must not make.
///
/// The process must be single-threaded, and root of the host.
///
/// # Errors
/// An error if the kernel refuses a step. The process must end then: it may have lost some rights and not others.
pub fn enter_tree(tree: &Path, log_refused_calls: bool) -> io::Result<()> {
    precedence::give_up_oom_protection()?;
    precedence::give_up_precedence()?;
    sys::close_on_exec_from(3)?;
    // Nobody waits for the process that holds the namespace.
    sys::set_reaps_children(false)?;
    let request = BuildRequest { id_base: net::UNPACKING_ID, kind: JailKind::Sandbox, restore: None };
    let failed = |failure: Failure| io::Error::other(format!("{}: {}", failure.step, failure.reason));
    let (holder, lifeline) = jail::hold_user_namespace(&request).map_err(failed)?;
    let users = jail::user_namespace(holder).map_err(failed)?;
    drop(lifeline);

    // Before the user namespace is entered: it has no rights over them.
    sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let root = open_tree(CWD, tree, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    sys::idmap_mount(root.as_fd(), users.as_fd(), MountRights::Unpacking)?;
    move_mount(&root, "", CWD, NEW_ROOT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    chdir(NEW_ROOT)?;
    // The tree has no directory for the former root, which is put on top of it, and taken away.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    drop(root);
    umask(Mode::WGRP | Mode::WOTH);
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, MAX_DESCRIPTORS)?;

    move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
    drop(users);
    sys::become_root()?;
    jail::drop_bounding_set()?;
    clear_ambient_capability_set()?;
    let kept = KEPT.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one);
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })?;
    limit(Resource::As, MAX_MEMORY)?;
    set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Not before: a change of identity clears it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let refused_calls = if log_refused_calls { RefusedCalls::Logged } else { RefusedCalls::Silent };
    jail::load_for_unpacker(refused_calls)
}

/// Sets both limits of a resource, not above what the process has.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
    setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) }).map_err(Into::into)
}
