/* The frame of a program of attacks: `program NAME` runs one, prints `held: DETAIL` or `broke: DETAIL`, and then keeps whatever
 * the attack got until it reads a byte, so that a witness on the host can look at it. It ends with all processes it started. */
#ifndef ATTACK_H
#define ATTACK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long an attack may take, in seconds. One that blocks got nothing. */
#define TIME_LIMIT 20

struct attack {
    const char *name;
    void (*run)(void);
    struct attack *next;
};

static struct attack *attacks;

/* Declares an attack. `tests/attacks/programs.py` reads group and name from this line. */
#define ATTACK(group, name)                                                                                            \
    static void name(void);                                                                                            \
    __attribute__((constructor)) static void add_##name(void) {                                                        \
        static struct attack one = {#name, name, NULL};                                                                \
        one.next = attacks;                                                                                            \
        attacks = &one;                                                                                                \
    }                                                                                                                  \
    static void name(void)

/* Prints the verdict and waits for the end of standard input. */
static __attribute__((noreturn, format(printf, 2, 3))) void verdict(const char *word, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(1, "%s: %s\n", word, text);
    alarm(0);
    char byte;
    if (read(0, &byte, 1) < 0)
        _exit(2);
    kill(0, SIGKILL);
    _exit(2);
}

#define held(...) verdict("held", __VA_ARGS__)
#define broke(...) verdict("broke", __VA_ARGS__)

/* Numbers that older headers lack. */
enum {
    CALL_CLONE3 = 435,
    CALL_OPEN_TREE = 428,
    CALL_MOVE_MOUNT = 429,
    CALL_FSOPEN = 430,
    CALL_FSPICK = 433,
    CALL_PIDFD_OPEN = 434,
    CALL_PIDFD_GETFD = 438,
    CALL_MOUNT_SETATTR = 442,
    CALL_QUOTACTL_FD = 443,
    CALL_MEMFD_SECRET = 447,
    CALL_CACHESTAT = 451,
    CALL_STATMOUNT = 457,
    CALL_LISTMOUNT = 458,
    CALL_LSM_SET_SELF_ATTR = 460,
    CALL_OPEN_TREE_ATTR = 467,
    CALL_FILE_SETATTR = 469,
    CALL_LISTNS = 470,
};

/* Judges a call that must fail. */
static __attribute__((noreturn, unused)) void must_fail(long result) {
    int error = errno;
    if (result < 0)
        held("%s", strerror(error));
    broke("the call returned %ld", result);
}

/* Judges a write to a file that must not be changed. */
static __attribute__((noreturn, unused)) void must_not_write(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        held("open %s: %s", path, strerror(errno));
    long written = write(file, text, strlen(text));
    int error = errno;
    close(file);
    if (written < 0)
        held("write %s: %s", path, strerror(error));
    broke("%s took `%s`", path, text);
}

/* Runs a call in a child that may be killed for it. */
static __attribute__((unused)) void in_a_child(long (*call)(void)) {
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        long result = call();
        *shared = result < 0 ? 1 : 2;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        held("killed by signal %d", WTERMSIG(status));
    if (*shared == 2)
        broke("the call went through");
    held("refused");
}

static __attribute__((noreturn)) void out_of_time(int signal) {
    (void)signal;
    static const char text[] = "held: the call did not return\n";
    if (write(1, text, sizeof text - 1) < 0)
        _exit(2);
    kill(0, SIGKILL);
    _exit(2);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    setpgid(0, 0);
    struct sigaction action = {.sa_handler = out_of_time};
    sigaction(SIGALRM, &action, NULL);
    alarm(TIME_LIMIT);
    for (struct attack *one = attacks; one; one = one->next)
        if (!strcmp(one->name, arguments[1])) {
            one->run();
            held("nothing happened");
        }
    fprintf(stderr, "no attack is called %s\n", arguments[1]);
    return 2;
}

#endif
