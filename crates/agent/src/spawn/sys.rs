//! Fork and exec. `std::process::Command` does not fit: it needs a closure for the terminal and the priorities, and it waits
//! for its children itself, while here one reaper waits for all.
#![expect(
    unsafe_code,
    reason = "fork, the system calls between it and exec, and kill(-1) have no safe interface"
)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::process::{Pid, Signal};

use super::Step;
use super::launch::{Controls, Launch, Stdio};

/// Exit statuses of a shell that cannot find, or cannot run, a command.
const NOT_FOUND: c_int = 127;
const NOT_EXECUTABLE: c_int = 126;
const SHELL: &CStr = c"/bin/sh";

/// Length of the report of a process that cannot become the program: the step and the error number.
pub(super) const REPORT_LENGTH: usize = 5;

/// Forks a process that becomes `launch`. An error before the program runs is written to `report`, which is closed when the
/// program starts.
pub(super) fn fork(launch: &Launch, stdio: &Stdio, report: &OwnedFd) -> io::Result<Pid> {
    // All memory the child needs is allocated now: after a fork of a process with threads, the allocator may be locked.
    let arguments = pointers(&launch.arguments);
    let environment = pointers(&launch.environment);
    // `/bin/sh`, then the script, then the arguments after the command's own name.
    let mut script = vec![SHELL.as_ptr(), ptr::null()];
    script.extend_from_slice(&arguments[1..]);
    // SAFETY: the child calls `become_program` only, which makes system calls on memory prepared above and never returns.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is the child, single-threaded, and the pointers stay valid since the parent's memory is copied.
        0 => unsafe {
            become_program(launch, stdio, report.as_raw_fd(), &arguments, &environment, &mut script)
        },
        pid => Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork gave process id 0")),
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// Turns the current process into `launch`. Async-signal-safe calls only.
///
/// # Safety
///
/// The current process must be a fresh fork. `arguments`, `environment` and `script` must be arrays of C strings that
/// end with a null pointer, `script` with a place for the path at index 1.
unsafe fn become_program(
    launch: &Launch,
    stdio: &Stdio,
    report: c_int,
    arguments: &[*const c_char],
    environment: &[*const c_char],
    script: &mut [*const c_char],
) -> ! {
    let streams = match stdio {
        Stdio::Streams([input, output, error]) => [input.as_raw_fd(), output.as_raw_fd(), error.as_raw_fd()],
        Stdio::Terminal(terminal) => [terminal.as_raw_fd(); 3],
    };
    // SAFETY: plain system calls, on descriptors that are open and memory that outlives them.
    unsafe {
        for (target, stream) in (0..).zip(streams) {
            check(libc::dup2(stream, target), Step::Streams, report);
        }
        if matches!(stdio, Stdio::Terminal(_)) {
            check(libc::setsid(), Step::Terminal, report);
            check(libc::ioctl(0, libc::TIOCSCTTY, 0), Step::Terminal, report);
        }
        // Ignored signals and the mask survive exec; a program expects neither.
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::umask(0o022);
        if launch.controls == Controls::Workload {
            weigh_as_workload();
        }
        if let Some(user) = &launch.credentials {
            // Raw calls: the wrappers of the C library would signal other threads, and there are none here.
            let groups = libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr());
            check(groups as c_int, Step::Credentials, report);
            let gid = libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid);
            check(gid as c_int, Step::Credentials, report);
            let uid = libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid);
            check(uid as c_int, Step::Credentials, report);
        }
        check(libc::chdir(launch.directory.as_ptr()), Step::Directory, report);
        // Our own descriptors are close-on-exec; this covers those of libraries.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);

        let mut refusal = (&launch.not_found, NOT_FOUND);
        for candidate in &launch.candidates {
            libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::ENOEXEC => {
                    // A script without a `#!` line: shells run it themselves.
                    refusal = (&launch.not_executable, NOT_EXECUTABLE);
                    script[1] = candidate.as_ptr();
                    libc::execve(SHELL.as_ptr(), script.as_ptr(), environment.as_ptr());
                }
                libc::E2BIG => check(-1, Step::Arguments, report),
                _ => refusal = (&launch.not_executable, NOT_EXECUTABLE),
            }
        }
        let (text, status) = refusal;
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::_exit(status)
    }
}

/// Sets the out-of-memory score to 100, I/O to the middle level of best effort, and nice to 0. Failures do not matter: they mean
/// that the kernel lacks the setting or the value is set already.
unsafe fn weigh_as_workload() {
    const IOPRIO_WHO_PROCESS: c_int = 1;
    const BEST_EFFORT_4: c_int = (2 << 13) | 4;
    // SAFETY: plain system calls on constants.
    unsafe {
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if score >= 0 {
            libc::write(score, c"100".as_ptr().cast(), 3);
            libc::close(score);
        }
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, BEST_EFFORT_4);
    }
}

/// Ends the process with a report if a call has failed.
unsafe fn check(result: c_int, step: Step, report: c_int) {
    if result >= 0 {
        return;
    }
    // SAFETY: `errno` of this thread, a write from the stack, and the end.
    unsafe {
        let mut bytes = [step as u8; REPORT_LENGTH];
        bytes[1..].copy_from_slice(&(*libc::__errno_location()).to_ne_bytes());
        libc::write(report, bytes.as_ptr().cast(), bytes.len());
        libc::_exit(NOT_FOUND)
    }
}

/// Sends `signal` to every process but this one. Does nothing unless this is PID 1, as otherwise those are not the processes of a
/// sandbox.
pub(super) fn signal_everything(signal: Signal) {
    if std::process::id() == 1 {
        // SAFETY: a plain system call.
        unsafe { libc::kill(-1, signal.as_raw()) };
    }
}
