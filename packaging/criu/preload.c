/* Preloaded into CRIU.
 *
 * Where root lacks CAP_SYS_RESOURCE: CRIU reads the limits of each process with prlimit64, which the kernel then refuses for the processes
 * of a sandbox; the same numbers are in /proc/PID/limits, which root may read.
 *
 * For a restore: the kernel charges the owner of a user namespace for what is used in it, and that is whoever makes it. With SANDCOVE_OWNER it
 * is that user, who is root inside, and not root of the host.
 *
 * For a restore too: a process gets the controlling terminal of its session from its parent, when it is forked. CRIU gives it to the first
 * process of the session alone, when all are forked. SANDCOVE_TERMINALS has pairs `TERMINAL:PROCESS`, in the order of the terminals, with 0 for
 * one without a session. They are created before the first process forks, and kept in CRIU's store of descriptors; each process of a pair takes
 * its terminal when it begins its session, before it forks others of the session; and where CRIU opens `./././dev/pts/ptmx` it gets terminal 2.
 *
 * For a dump: CRIU looks for files that are watched with inotify by the numbers of their inodes, and an overlay has some more than once. It sees
 * descriptors without watches here; the server stores these itself.
 *
 * For a dump too: the kernel goes on with an interrupted call that has a timeout by a note which CRIU cannot read, and which it overwrites. It lets
 * such a call fail with EINTR, in the copy and in the process that goes on, and programs without signal handlers do not expect that. Here the
 * call begins again: with the time that is left where the program has asked for it, and with all of it otherwise.
 *
 * For a dump too: with SANDCOVE_COMMON, descriptor 1 is a pipe with lines `PROCESS START END`, in order: memory that the server has stored already, so
 * that CRIU sees no pages there. The server adds them to the images. The pipe is read when CRIU looks for the first page, since the
 * server finds these while CRIU is at other things.
 *
 * For a dump too: CRIU finds out what the kernel can do, which takes longer than many a dump, and keeps that in /run if it is a file system in
 * memory. In containers it often is not. With SANDCOVE_CACHE it is kept in that file; the server deletes it when it starts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <elf.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

/* The names in /proc/PID/limits, by the numbers of the limits. */
static const char *const NAMES[] = {
    "Max cpu time",       "Max file size",     "Max data size",     "Max stack size",
    "Max core file size", "Max resident set",  "Max processes",     "Max open files",
    "Max locked memory",  "Max address space", "Max file locks",    "Max pending signals",
    "Max msgqueue size",  "Max nice priority", "Max realtime priority", "Max realtime timeout",
};
/* Columns of the soft and the hard limit. */
enum { SOFT = 26, HARD = 47 };

static long raw(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static unsigned long long value(const char *text) {
    return strncmp(text, "unlimited", 9) == 0 ? ~0ULL : strtoull(text, NULL, 10);
}

static int read_limit(long pid, long number, unsigned long long *limit) {
    char path[64], line[256];
    int found = -1;
    if (number < 0 || number >= (long)(sizeof NAMES / sizeof *NAMES)) return -1;
    snprintf(path, sizeof path, "/proc/%ld/limits", pid);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, NAMES[number], strlen(NAMES[number])) == 0 && strlen(line) > HARD) {
            limit[0] = value(line + SOFT);
            limit[1] = value(line + HARD);
            found = 0;
        }
    }
    fclose(file);
    return found;
}

static void become(long id) {
    raw(SYS_setresgid, -1, id, -1, 0, 0, 0);
    raw(SYS_setresuid, -1, id, -1, 0, 0, 0);
    /* The change would make the files of this process in /proc, and of its children, those of root. */
    raw(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0);
}

static long clone_owned(long arguments, long size) {
    const char *owner = getenv("SANDCOVE_OWNER");
    if (!owner || !(((struct clone_args *)arguments)->flags & CLONE_NEWUSER)) return raw(SYS_clone3, arguments, size, 0, 0, 0, 0);
    become(strtol(owner, NULL, 10));
    long result = raw(SYS_clone3, arguments, size, 0, 0, 0, 0);
    if (result != 0) become(0);
    return result;
}

/* CRIU's store, which all processes of a restore have. */
extern int fdstore_add(int fd) __attribute__((weak));
extern int fdstore_get(int id) __attribute__((weak));

enum { MAX_TERMINALS = 256 };
static struct terminal {
    int index, leader;
    /* Numbers in the store. Without its second end the terminal of a session would be hung up; one that nobody has opened must stay so. */
    int master, slave;
} terminals[MAX_TERMINALS];
static int terminal_count;

/* Opens the master of the terminal `index`, which nobody has: the kernel gives the lowest number. */
static int open_master(int index) {
    int others[MAX_TERMINALS], count = 0, found = -1, number;
    while (found < 0 && count < MAX_TERMINALS) {
        long fd = raw(SYS_openat, AT_FDCWD, (long)"/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0, 0, 0);
        if (fd < 0) break;
        if (raw(SYS_ioctl, fd, TIOCGPTN, (long)&number, 0, 0, 0) == 0 && number == index) found = (int)fd;
        else others[count++] = (int)fd;
        if (number > index) break;
    }
    while (count > 0) close(others[--count]);
    return found;
}

/* Puts a descriptor into the store. */
static int keep(int fd) {
    int number = fd >= 0 ? fdstore_add(fd) : -1;
    if (fd >= 0) close(fd);
    return number;
}

static int create_terminal(struct terminal *terminal) {
    int unlock = 0, master = open_master(terminal->index);
    terminal->slave = -1;
    if (master >= 0 && terminal->leader > 0 && ioctl(master, TIOCSPTLCK, &unlock) == 0)
        terminal->slave = keep(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    terminal->master = keep(master);
    return terminal->master >= 0 && (terminal->slave >= 0 || terminal->leader == 0);
}

/* Runs once, in the first process of the sandbox, which has all its mounts then and no children. */
static void create_terminals(void) {
    static int created;
    const char *text = getenv("SANDCOVE_TERMINALS");
    int length;
    if (created++ || !text || !fdstore_add || !fdstore_get) return;
    while (terminal_count < MAX_TERMINALS) {
        struct terminal *terminal = &terminals[terminal_count];
        if (sscanf(text, "%d:%d%n", &terminal->index, &terminal->leader, &length) != 2) return;
        /* What follows would have other numbers. */
        if (!create_terminal(terminal)) return;
        terminal_count++;
        text += length;
        text += *text == ',';
    }
}

pid_t setsid(void) {
    long session = raw(SYS_setsid, 0, 0, 0, 0, 0, 0);
    for (int i = 0; i < terminal_count && session > 0; i++) {
        if (terminals[i].leader != session) continue;
        int slave = fdstore_get(terminals[i].slave);
        if (slave >= 0) {
            ioctl(slave, TIOCSCTTY, 0);
            close(slave);
        }
    }
    if (session > 0) return (pid_t)session;
    errno = (int)-session;
    return -1;
}

/* Copies what /proc/PID/fdinfo/N has, without the watches, where there are some. */
static long without_watches(long fd) {
    char line[1024];
    int copy = -1;
    FILE *file = fdopen(dup((int)fd), "r");
    if (!file) return fd;
    while (copy < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "inotify ", 8) == 0) copy = memfd_create("fdinfo", MFD_CLOEXEC);
    rewind(file);
    while (copy >= 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "inotify ", 8) != 0) dprintf(copy, "%s", line);
    fclose(file);
    lseek(copy < 0 ? (int)fd : copy, 0, SEEK_SET);
    if (copy < 0) return fd;
    close((int)fd);
    return copy;
}

/* Where CRIU keeps what it knows of the kernel. */
static const char KNOWN[] = "/run/criu.kdat";

/* The path that is used in place of `path`. */
static const char *moved(const char *path, char buffer[256]) {
    const char *cache = getenv("SANDCOVE_CACHE");
    if (!cache || strncmp(path, KNOWN, sizeof KNOWN - 1) != 0) return path;
    snprintf(buffer, 256, "%s%s", cache, path + sizeof KNOWN - 1);
    return buffer;
}

int open64(const char *path, int flags, ...) {
    char buffer[256];
    va_list list;
    va_start(list, flags);
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0;
    va_end(list);
    return openat64(AT_FDCWD, moved(path, buffer), flags, mode);
}

int rename(const char *from, const char *to) {
    char buffers[2][256];
    return renameat(AT_FDCWD, moved(from, buffers[0]), AT_FDCWD, moved(to, buffers[1]));
}

int unlink(const char *path) {
    char buffer[256];
    return unlinkat(AT_FDCWD, moved(path, buffer), 0);
}

/* A file of the server's own is as good as one in memory. */
int fstatfs64(int fd, struct statfs64 *found) {
    char link[32], path[256];
    const char *cache = getenv("SANDCOVE_CACHE");
    long result = raw(SYS_fstatfs, fd, (long)found, 0, 0, 0, 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = cache && result == 0 ? readlink(link, path, sizeof path - 1) : 0;
    if (size > 0 && strncmp(path, cache, strlen(cache)) == 0) found->f_type = 0x01021994; /* tmpfs */
    if (result == 0) return 0;
    errno = (int)-result;
    return -1;
}

int openat64(int directory, const char *path, int flags, ...) {
    int mode = 0, dots = 0;
    if (flags & (O_CREAT | __O_TMPFILE)) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, int);
        va_end(list);
    }
    const char *rest = path;
    for (; rest[0] == '.' && rest[1] == '/'; rest += 2) dots++;
    size_t length = strlen(rest);
    int is_master = length >= 5 && strcmp(rest + length - 5, "/ptmx") == 0;
    for (int i = 0; i < terminal_count && dots > 0 && is_master; i++) {
        if (terminals[i].index != dots - 1) continue;
        int master = fdstore_get(terminals[i].master);
        if (master >= 0) fcntl(master, F_SETFL, flags);
        return master;
    }
    long fd = raw(SYS_openat, directory, (long)path, flags | O_LARGEFILE, mode, 0, 0);
    if (fd >= 0 && strstr(path, "fdinfo/")) fd = without_watches(fd);
    if (fd >= 0) return (int)fd;
    errno = (int)-fd;
    return -1;
}

/* Memory that is stored already. */
static struct range {
    int process;
    uint64_t start, end;
} *ranges;
static size_t range_count;

static void read_ranges(void) {
    static int read;
    struct range range;
    if (read++ || !getenv("SANDCOVE_COMMON")) return;
    FILE *file = fdopen(dup(STDOUT_FILENO), "r");
    if (!file) return;
    while (fscanf(file, "%d %lx %lx", &range.process, &range.start, &range.end) == 3) {
        if (range_count % 1024 == 0) {
            struct range *more = realloc(ranges, (range_count + 1024) * sizeof range);
            /* What is missing here, CRIU stores, and the server sees it. */
            if (!more) break;
            ranges = more;
        }
        ranges[range_count++] = range;
    }
    fclose(file);
}

/* The first range that ends behind `address`, of the process whose pages `fd` tells of; NULL when there is none. */
static const struct range *first_range(int fd, uint64_t address) {
    char link[32], path[64];
    int process, length = 0;
    read_ranges();
    if (range_count == 0) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = readlink(link, path, sizeof path - 1);
    path[size > 0 ? size : 0] = 0;
    if (sscanf(path, "/proc/%d/pagemap%n", &process, &length) != 1 || length != size) return NULL;
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct range *range = &ranges[middle];
        if (range->process < process || (range->process == process && range->end <= address)) low = middle + 1;
        else high = middle;
    }
    return low < range_count && ranges[low].process == process ? &ranges[low] : NULL;
}

static const struct range *next_range(const struct range *range) {
    const struct range *next = range + 1;
    return next < ranges + range_count && next->process == range->process ? next : NULL;
}

/* The kernel's interface since Linux 6.7: regions of pages in the categories that are asked for. */
struct region { uint64_t start, end, categories; };
struct scan { uint64_t size, flags, start, end, walk_end, vec, vec_len, others[5]; };
enum { IS_GUARD = 1 << 8 };
static const unsigned long SCAN = _IOWR('f', 16, struct scan);

/* Takes the ranges out of the regions. Where that leaves more than there is room for, the scan has ended before. */
static long without_ranges(int fd, struct scan *scan, long count) {
    struct region *regions = (struct region *)scan->vec, *left;
    const struct range *range = first_range(fd, scan->start);
    uint64_t found = 0;
    if (count <= 0 || !range || !(left = malloc(scan->vec_len * sizeof *left))) return count;
    for (long i = 0; i < count; i++) {
        struct region rest = regions[i];
        while (rest.start < rest.end) {
            while (range && range->end <= rest.start) range = next_range(range);
            int is_cut = range && range->start < rest.end && !(rest.categories & IS_GUARD);
            struct region part = rest;
            if (is_cut) part.end = range->start > rest.start ? range->start : rest.start;
            rest.start = is_cut ? (range->end < rest.end ? range->end : rest.end) : rest.end;
            if (part.start == part.end) continue;
            if (found == scan->vec_len) {
                scan->walk_end = part.start;
                i = count;
                break;
            }
            left[found++] = part;
        }
    }
    memcpy(regions, left, found * sizeof *left);
    free(left);
    return (long)found;
}

int ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    long argument = va_arg(list, long);
    va_end(list);
    long result = raw(SYS_ioctl, fd, (long)request, argument, 0, 0, 0);
    if (request == SCAN) result = without_ranges(fd, (struct scan *)argument, result);
    if (result >= 0) return (int)result;
    errno = (int)-result;
    return -1;
}

/* For a dump: CRIU reads what is waiting in a terminal, and writes it back in the end, as it has come out of the terminal. It is not to be changed once more. */
ssize_t write(int fd, const void *data, size_t size) {
    /* The kernel's structure: four words of flags, of which the second is about output, and what is smaller than the rest. */
    unsigned flags[16], plain[16];
    int changes = getenv("SANDCOVE_COMMON") && raw(SYS_ioctl, fd, TCGETS, (long)flags, 0, 0, 0) == 0 && (flags[1] & OPOST);
    if (changes) {
        memcpy(plain, flags, sizeof plain);
        plain[1] &= ~(unsigned)OPOST;
        raw(SYS_ioctl, fd, TCSETS, (long)plain, 0, 0, 0);
    }
    long result = raw(SYS_write, fd, (long)data, (long)size, 0, 0, 0);
    if (changes) raw(SYS_ioctl, fd, TCSETS, (long)flags, 0, 0, 0);
    if (result >= 0) return result;
    errno = (int)-result;
    return -1;
}

/* What CRIU reads of pages where the kernel has no such interface: eight bytes for each. */
ssize_t pread64(int fd, void *buffer, size_t size, off64_t offset) {
    enum { PAGE = 4096, ENTRY = sizeof(uint64_t) };
    long result = raw(SYS_pread64, fd, (long)buffer, (long)size, offset, 0, 0);
    uint64_t *entries = buffer, first = (uint64_t)offset / ENTRY;
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    for (const struct range *range = first_range(fd, first * PAGE); range; range = next_range(range)) {
        uint64_t from = range->start / PAGE, to = range->end / PAGE, count = (uint64_t)result / ENTRY;
        if (from >= first + count) break;
        for (uint64_t page = from > first ? from : first; page < to && page < first + count; page++) entries[page - first] = 0;
    }
    return result;
}

/* What the kernel notes for a call that goes on by a note, and for one that is called again. */
enum { BY_NOTE = -516, AGAIN = -513, LONG_MODE = 0x33, MOVE = 0xB8 };
/* What a list for poll(2) has: not too many, descriptors below the usual limit, and events that there are. */
enum { MAX_POLLED = 256, MAX_DESCRIPTOR = 1 << 20, EVENTS = 0x3FFF };

/* Whether a thread has a signal to handle: it is to see that its call was interrupted. */
static int has_signal(int thread) {
    char path[64], line[256];
    unsigned long long pending = 0, blocked = 0, mask;
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *file = fopen(path, "r");
    if (!file) return 1;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "SigPnd: %llx", &mask) == 1 || sscanf(line, "ShdPnd: %llx", &mask) == 1) pending |= mask;
        if (sscanf(line, "SigBlk: %llx", &mask) == 1) blocked = mask;
    }
    fclose(file);
    return (pending & ~blocked) != 0;
}

/* Whether the registers are those of poll(2): few descriptors, and their list. */
static int is_poll(int thread, const struct user_regs_struct *registers) {
    struct pollfd list[MAX_POLLED];
    unsigned long count = registers->rsi;
    struct iovec here = {list, count * sizeof *list}, there = {(void *)registers->rdi, count * sizeof *list};
    if (count == 0 || count > MAX_POLLED || process_vm_readv(thread, &here, 1, &there, 1, 0) != (long)here.iov_len) return 0;
    for (unsigned long i = 0; i < count; i++) {
        if (list[i].fd > MAX_DESCRIPTOR || (list[i].events & ~EVENTS) != 0) return 0;
    }
    /* A futex has an operation there, and the value that is waited for. */
    return count < FUTEX_PRIVATE_FLAG || *(int *)list != (int)registers->rdx;
}

static void call_again(int thread, struct user_regs_struct *registers) {
    unsigned char code[7];
    struct iovec here = {code, sizeof code}, there = {(void *)(registers->rip - sizeof code), sizeof code};
    int call = (int)registers->orig_rax;
    if ((long)registers->rax != BY_NOTE || call < 0 || registers->cs != LONG_MODE) return;
    if (process_vm_readv(thread, &here, 1, &there, 1, 0) != sizeof code || code[5] != 0x0F || code[6] != 0x05) return;
    if (call == SYS_restart_syscall) {
        /* It was interrupted before. The registers are those of the first time, and in some C libraries the number is in the code. Of the
         * others only poll is interrupted by each freeze. */
        if (code[0] == MOVE) memcpy(&call, code + 1, sizeof call);
        else if (is_poll(thread, registers)) call = SYS_poll;
    }
    if (has_signal(thread)) return;
    switch (call) {
    case SYS_poll:
    case SYS_futex: break;
    /* The kernel has written the time that is left to where the program wants it. */
    case SYS_nanosleep: if (registers->rsi) registers->rdi = registers->rsi; break;
    case SYS_clock_nanosleep: if (registers->r10) registers->rdx = registers->r10; break;
    default: return;
    }
    registers->orig_rax = call;
    registers->rax = AGAIN;
}

long ptrace(enum __ptrace_request request, ...) {
    va_list list;
    va_start(list, request);
    long thread = va_arg(list, long), address = va_arg(list, long), data = va_arg(list, long), word;
    va_end(list);
    int peeks = request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;
    long result = raw(SYS_ptrace, request, (int)thread, address, peeks ? (long)&word : data, 0, 0);
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    if (peeks) errno = 0;
    if (request == PTRACE_GETREGSET && address == NT_PRSTATUS) {
        struct iovec *registers = (struct iovec *)data;
        if (registers->iov_len == sizeof(struct user_regs_struct)) call_again((int)thread, registers->iov_base);
    }
    return peeks ? word : result;
}

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    /* The fork of a child that gets the number it had. */
    if (number == SYS_clone3 && getpid() == 1 && ((struct clone_args *)a)->set_tid_size > 0) create_terminals();
    long result = number == SYS_clone3 ? clone_owned(a, b) : raw(number, a, b, c, d, e, f);
    if (number == SYS_prlimit64 && result == -EPERM && !c && d && read_limit(a, b, (void *)d) == 0) return 0;
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
