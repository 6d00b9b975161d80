/* Attacks on devices, made by hand or shared, and on terminals. */
#include "attack.h"

#include <sys/prctl.h>
#include <sys/sysmacros.h>

#define DEVICE(name, major, minor, kind)                                                                               \
    ATTACK(devices, name) {                                                                                            \
        if (mknod("/tmp/" #name, ((kind) ? S_IFBLK : S_IFCHR) | 0600, makedev(major, minor)))        \
            held("%s", strerror(errno));                                                                               \
        must_fail(open("/tmp/" #name, O_RDWR | O_NONBLOCK));                                                           \
    }

DEVICE(node_of_memory, 1, 1, 0)
DEVICE(node_of_the_kernels_log, 1, 11, 0)
DEVICE(node_of_virtual_machines, 10, 232, 0)
DEVICE(node_of_user_file_systems, 10, 229, 0)
DEVICE(node_of_tunnels, 10, 200, 0)
DEVICE(node_of_loop_control, 10, 237, 0)
DEVICE(node_of_a_console, 5, 1, 0)
DEVICE(node_of_a_disk, 253, 0, 1)
DEVICE(node_of_a_loop, 7, 0, 1)

/* A device 0/0 hides a file of a lower layer. Without rights it may be made, but not by way of the overlay. */
ATTACK(devices, a_whiteout_by_hand) { must_fail(mknod("/usr/bin/whiteout", S_IFCHR, 0)); }

static int terminal(int *other) {
    int control = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlock = 0;
    if (control < 0 || ioctl(control, 0x40045431 /* TIOCSPTLCK */, &unlock))
        held("no terminal: %s", strerror(errno));
    *other = ioctl(control, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY);
    if (*other < 0)
        held("no terminal: %s", strerror(errno));
    return control;
}

ATTACK(devices, typing_into_a_terminal) {
    int other;
    terminal(&other);
    must_fail(ioctl(other, 0x5412 /* TIOCSTI */, "x"));
}

/* The filter compares 32 bits, and so does the kernel. */
ATTACK(devices, typing_with_stray_upper_bits) {
    int other;
    terminal(&other);
    must_fail(syscall(SYS_ioctl, other, 0x100005412UL, "x"));
}

ATTACK(devices, pasting_a_selection) {
    int other;
    terminal(&other);
    must_fail(ioctl(other, 0x541c /* TIOCLINUX */, "\3"));
}

ATTACK(devices, the_hosts_console_redirected) {
    int other;
    terminal(&other);
    must_fail(ioctl(other, 0x541d /* TIOCCONS */));
}

ATTACK(devices, a_line_discipline_of_a_modem) {
    int other, discipline = 21 /* N_GSM0710 */;
    terminal(&other);
    must_fail(ioctl(other, 0x5423 /* TIOCSETD */, &discipline));
}

static int stolen;

static long steal(void) {
    setsid();
    return ioctl(stolen, 0x540e /* TIOCSCTTY */, 1);
}

ATTACK(devices, another_sessions_terminal) {
    int other;
    terminal(&other);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        ioctl(other, 0x540e, 0);
        kill(getppid(), SIGUSR1);
        pause();
        _exit(0);
    }
    sigset_t owned;
    sigemptyset(&owned);
    sigaddset(&owned, SIGUSR1);
    sigtimedwait(&owned, NULL, &(struct timespec){5, 0});
    stolen = other;
    in_a_child(steal);
}
