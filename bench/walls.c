/* Which calls, files and devices of the kernel a program reaches, as root of whatever it runs in. Prints a line for each probe: its
 * subject, what it tries, and `open`, `closed` or `absent`. A probe changes nothing for others: it asks for what
 * is so already, or for something invalid, which the kernel reports only to a caller that has the right.
 *
 * Closed means that the kernel refused by right or by filter. Absent means that this kernel has no such thing, or no such file is seen. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long (*probe)(void);

static const char *path;

static long to_write(void) { return open(path, O_WRONLY | O_NONBLOCK); }
static long to_read(void) {
    int file = open(path, O_RDONLY | O_NONBLOCK);
    char byte;
    long count = file < 0 ? -1 : read(file, &byte, 1);
    /* A file that is covered by an empty one. */
    if (count == 0) {
        errno = ENOENT;
        return -1;
    }
    return count;
}
static long to_list(void) {
    struct stat about;
    /* A directory that is covered by an empty one has two links, itself and its entry, and size 0 or 40. */
    if (stat(path, &about))
        return -1;
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    char entries[4096];
    long count = directory < 0 ? -1 : syscall(SYS_getdents64, directory, entries, sizeof entries);
    if (count >= 0 && count <= 48) {
        errno = ENOENT;
        return -1;
    }
    return count;
}

/* Runs in the child of the probe, which ends then. */
static long new_user(void) { return unshare(CLONE_NEWUSER); }
static long new_mounts(void) { return unshare(CLONE_NEWNS); }
static long new_network(void) { return unshare(CLONE_NEWNET); }
static long user_by_clone3(void) {
    uint64_t arguments[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
    long child = syscall(435, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return child;
}
static long mount_memory(void) { return mount("none", "/tmp", "tmpfs", 0, ""); }
static long mount_context(void) { return syscall(430, "tmpfs", 0); }
static long mount_tree(void) { return syscall(428, AT_FDCWD, "/", 1); }
static long mounts_listed(void) {
    uint64_t request[3] = {24, ~0ULL, 0}, ids[16];
    return syscall(458, request, ids, 16, 0);
}
static long change_root(void) { return chroot("/"); }
static long handle(void) {
    struct {
        unsigned bytes;
        int type;
        char id[64];
    } one = {64, 0, {0}};
    int mount;
    return syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &one, &mount, 0);
}
static long open_handle(void) {
    struct {
        unsigned bytes;
        int type;
        unsigned id[2];
    } one = {8, 1, {2, 0}};
    long result = syscall(SYS_open_by_handle_at, AT_FDCWD, &one, O_RDONLY);
    /* The kernel reports a stale handle only to a caller that has the right. */
    return result < 0 && errno == ESTALE ? 0 : result;
}
static long bpf_map(void) {
    uint32_t attributes[32] = {2, 4, 4, 1};
    return syscall(SYS_bpf, 0, attributes, sizeof attributes);
}
static long counter(void) {
    uint32_t attributes[32] = {1, 128, 0};
    return syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0);
}
static long faults(void) { return syscall(SYS_userfaultfd, 1); }
static long ring(void) {
    uint32_t parameters[30] = {0};
    return syscall(SYS_io_uring_setup, 1, parameters);
}
static long asynchronous(void) { return syscall(SYS_io_setup, 1, (unsigned long[1]){0}); }
static long key(void) { return syscall(SYS_add_key, "user", "walls", "x", 1, -1); }
static long session(void) { return syscall(SYS_keyctl, 1, NULL); }
static long fanotify(void) { return syscall(SYS_fanotify_init, 0x200, O_RDONLY); }
static long module(void) { return syscall(SYS_init_module, "", 0, ""); }
static long new_kernel(void) { return syscall(SYS_kexec_load, 0, 1 << 20, NULL, 0); }
static long kernel_log(void) { return syscall(SYS_syslog, 10, NULL, 0); }
static long clock_speed(void) {
    struct timex now = {0};
    adjtimex(&now);
    now.modes = ADJ_TICK;
    return adjtimex(&now);
}
static long host_name(void) {
    char name[65];
    gethostname(name, sizeof name);
    return sethostname(name, strlen(name));
}
static long swap(void) { return syscall(SYS_swapoff, "/none"); }
static long quota(void) { return syscall(SYS_quotactl, 0x80000100, NULL, 0, NULL); }
static long accounting(void) { return syscall(SYS_acct, "/none/none"); }
#ifdef __x86_64__
static long segments(void) {
    char entries[64];
    return syscall(SYS_modify_ldt, 0, entries, sizeof entries);
}
static long old_calls(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(20L) : "r8", "r9", "r10", "r11", "memory");
    errno = result < 0 ? (int)-result : 0;
    return result;
}
#endif
static long personality_of_old(void) { return syscall(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */); }
static long page_cache(void) {
    uint64_t range[2] = {0, 4096}, counts[5];
    return syscall(451, open("/bin/sh", O_RDONLY), range, counts, 0);
}
static long real_time(void) {
    struct sched_param parameters = {.sched_priority = 1};
    return sched_setscheduler(0, SCHED_FIFO, &parameters);
}
static long nice_below_zero(void) { return setpriority(PRIO_PROCESS, 0, -1); }
static long sync_of_all(void) { return syscall(SYS_sync); }

static int family, kind, protocol;
static long a_socket(void) { return socket(family, kind, protocol); }

static long interface_change(void) {
    struct {
        uint32_t length;
        uint16_t type, flags;
        uint32_t sequence, port;
        char body[32];
    } request = {48, 16, 5, 1, 0, {0}};
    int link = socket(AF_NETLINK, SOCK_RAW, 0);
    char answer[256];
    if (link < 0 || send(link, &request, sizeof request, 0) < 0 || recv(link, answer, sizeof answer, 0) < 20)
        return -1;
    int error;
    memcpy(&error, answer + 16, sizeof error);
    errno = -error;
    return error == -EPERM ? -1 : 0;
}

static dev_t device;
static long node(void) {
    unlink("/tmp/walls-node");
    if (mknod("/tmp/walls-node", S_IFCHR | 0600, device))
        return -1;
    long result = open("/tmp/walls-node", O_RDONLY | O_NONBLOCK);
    int error = errno;
    unlink("/tmp/walls-node");
    errno = error;
    return result;
}

static long terminal_request(unsigned long request, void *argument) {
    int control = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlock = 0;
    if (control < 0 || ioctl(control, 0x40045431, &unlock))
        return -1;
    int other = ioctl(control, 0x5441, O_RDWR | O_NOCTTY);
    return other < 0 ? -1 : ioctl(other, request, argument);
}
static long typing(void) { return terminal_request(0x5412, "x"); }
static long discipline(void) {
    int null = 27;
    return terminal_request(0x5423, &null);
}
static long freezing(void) { return ioctl(open("/", O_RDONLY), 0xc0045878 /* FITHAW */, 0); }
static long immutable(void) {
    long flags = 0x10;
    int directory = mkdir("/tmp/walls", 0700) || 1 ? open("/tmp/walls", O_RDONLY) : -1;
    long result = ioctl(directory, 0x40086602, &flags);
    int error = errno;
    flags = 0;
    ioctl(directory, 0x40086602, &flags);
    rmdir("/tmp/walls");
    errno = error;
    return result;
}
static long trusted(void) { return syscall(SYS_setxattr, "/tmp", "trusted.walls", "", 0, 0); }

static void report(const char *subject, const char *what, probe run) {
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[0] = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        alarm(5);
        errno = 0;
        long result = run();
        shared[0] = result < 0 ? errno : 0;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    int error = WIFSIGNALED(status) ? EPERM : shared[0];
    const char *word = "open";
    switch (error) {
    case EPERM:
    case EACCES:
    case EROFS:
    case ENOSYS:
        word = "closed";
        break;
    case ENOENT:
    case ENXIO:
    case ENODEV:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
    case ENOTTY:
        word = "absent";
        break;
    default:
        break;
    }
    printf("%s\t%s\t%s\t%s\n", subject, what, word, error > 0 ? strerrorname_np(error) : "");
    munmap(shared, 4096);
}

static void file(const char *what, const char *name, probe run) {
    path = name;
    report("files", what, run);
}

static void sockets(const char *what, int one, int two, int three) {
    family = one, kind = two, protocol = three;
    report("sockets", what, a_socket);
}

static void nodes(const char *what, int major, int minor) {
    device = makedev(major, minor);
    report("devices", what, node);
}

int main(void) {
    report("namespaces", "new user namespace (`unshare`)", new_user);
    report("namespaces", "new user namespace (`clone3`)", user_by_clone3);
    report("namespaces", "new mount namespace", new_mounts);
    report("namespaces", "new network namespace", new_network);
    report("mounts", "`mount` of a tmpfs", mount_memory);
    report("mounts", "`fsopen`", mount_context);
    report("mounts", "`open_tree` of the root", mount_tree);
    report("mounts", "`listmount`", mounts_listed);
    report("mounts", "`chroot`", change_root);
    report("mounts", "file handle of the root", handle);
    report("mounts", "`open_by_handle_at`", open_handle);
    report("calls", "`bpf`: create a map", bpf_map);
    report("calls", "`perf_event_open` on itself", counter);
    report("calls", "`userfaultfd`", faults);
    report("calls", "`io_uring_setup`", ring);
    report("calls", "`io_setup` (one count for the host)", asynchronous);
    report("calls", "`add_key`", key);
    report("calls", "`keyctl`: new session keyring", session);
    report("calls", "`fanotify_init`", fanotify);
    report("calls", "`init_module`", module);
    report("calls", "`kexec_load`", new_kernel);
    report("calls", "`syslog`", kernel_log);
    report("calls", "`adjtimex`", clock_speed);
    report("calls", "`sethostname`", host_name);
    report("calls", "`swapoff`", swap);
    report("calls", "`quotactl`", quota);
    report("calls", "`acct`", accounting);
#ifdef __x86_64__
    report("calls", "`modify_ldt`", segments);
    report("calls", "32-bit calls (`int 0x80`)", old_calls);
#endif
    report("calls", "`personality(READ_IMPLIES_EXEC)`", personality_of_old);
    report("calls", "`cachestat`", page_cache);
    report("calls", "`sync` of the whole host", sync_of_all);
    report("calls", "real-time scheduling", real_time);
    report("calls", "nice below 0", nice_below_zero);
    sockets("packet", 17, SOCK_RAW, 0);
    sockets("raw IP", AF_INET, SOCK_RAW, 255);
    sockets("vsock", 40, SOCK_STREAM, 0);
    sockets("kernel crypto (`AF_ALG`)", 38, SOCK_SEQPACKET, 0);
    sockets("MPTCP", AF_INET, SOCK_STREAM, 262);
    sockets("UDP-Lite", AF_INET, SOCK_DGRAM, 136);
    sockets("netlink: nftables", AF_NETLINK, SOCK_RAW, 12);
    sockets("netlink: generic", AF_NETLINK, SOCK_RAW, 16);
    report("sockets", "netlink: change an interface", interface_change);
    nodes("make and open `/dev/mem`", 1, 1);
    nodes("make and open `/dev/kmsg`", 1, 11);
    nodes("make and open `/dev/fuse`", 10, 229);
    report("devices", "`TIOCSTI`: type into a terminal", typing);
    report("devices", "`TIOCSETD`: line discipline", discipline);
    report("devices", "`FITHAW` of the root", freezing);
    report("devices", "`FS_IOC_SETFLAGS`: immutable", immutable);
    report("devices", "attribute `trusted.*`", trusted);
    file("write `/proc/sys/kernel/core_pattern`", "/proc/sys/kernel/core_pattern", to_write);
    file("write `/proc/sysrq-trigger`", "/proc/sysrq-trigger", to_write);
    file("write `/sys/kernel/mm/ksm/run`", "/sys/kernel/mm/ksm/run", to_write);
    file("read `/proc/kcore`", "/proc/kcore", to_read);
    file("read `/proc/kallsyms`", "/proc/kallsyms", to_read);
    file("read `/proc/keys`", "/proc/keys", to_read);
    file("read `/proc/cmdline`", "/proc/cmdline", to_read);
    file("read `/proc/config.gz`", "/proc/config.gz", to_read);
    file("read `/proc/diskstats`", "/proc/diskstats", to_read);
    file("read `/proc/pressure/cpu`", "/proc/pressure/cpu", to_read);
    file("read `/proc/timer_list`", "/proc/timer_list", to_read);
    file("list `/sys/block`", "/sys/block", to_list);
    file("list `/sys/class/block`", "/sys/class/block", to_list);
    file("list `/sys/module`", "/sys/module", to_list);
    file("list `/sys/firmware`", "/sys/firmware", to_list);
    return 0;
}
