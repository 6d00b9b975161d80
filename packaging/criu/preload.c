/* Preloaded into CRIU.
 *
 * Where root lacks CAP_SYS_RESOURCE: CRIU reads the limits of each process with prlimit64, which the kernel then refuses for the processes
 * of a sandbox; the same numbers are in /proc/PID/limits, which root may read.
 *
 * For a restore: the kernel charges the owner of a user namespace for what is used in it, and that is whoever makes it. With SANDCOVE_OWNER it
 * is that user, who is root inside, and not root of the host. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    long result = number == SYS_clone3 ? clone_owned(a, b) : raw(number, a, b, c, d, e, f);
    if (number == SYS_prlimit64 && result == -EPERM && !c && d && read_limit(a, b, (void *)d) == 0) return 0;
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
