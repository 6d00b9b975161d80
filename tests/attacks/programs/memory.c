/* Attacks on the memory of the host: each makes the kernel keep about AMOUNT bytes for a process that maps none of them. The
 * witness on the host reads from the control group who pays for it. Prints `held: N` with the bytes that were taken. */
#include "attack.h"

#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>

#define AMOUNT (24L << 20)
#define PIECE (1L << 16)

static char piece[PIECE];

static void many_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void fill(int file) {
    memset(piece, 1, sizeof piece);
    long done = 0, written;
    while (done < AMOUNT && (written = write(file, piece, sizeof piece)) > 0)
        done += written;
    held("%ld", done);
}

ATTACK(memory, files_in_memory) { fill(memfd_create("x", 0)); }

ATTACK(memory, files_in_the_shared_directory) { fill(open("/dev/shm/fill", O_CREAT | O_RDWR, 0600)); }

ATTACK(memory, files_in_run) { fill(open("/run/fill", O_CREAT | O_RDWR, 0600)); }

ATTACK(memory, segments_without_a_process) {
    int segment = shmget(IPC_PRIVATE, AMOUNT, IPC_CREAT | 0600);
    char *map = shmat(segment, NULL, 0);
    if (map == (char *)-1)
        held("0");
    memset(map, 1, AMOUNT);
    shmdt(map);
    held("%ld", AMOUNT);
}

ATTACK(memory, unread_pipes) {
    many_descriptors();
    long done = 0;
    while (done < AMOUNT) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK))
            break;
        for (long written; (written = write(ends[1], piece, 4096)) > 0;)
            done += written;
    }
    held("%ld", done);
}

ATTACK(memory, unread_local_sockets) {
    many_descriptors();
    long done = 0;
    while (done < AMOUNT) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
            break;
        for (long written; (written = write(ends[1], piece, 4096)) > 0;)
            done += written;
    }
    held("%ld", done);
}

/* Sockets in flight: each is in the queue of the next, and no process has them open. */
ATTACK(memory, descriptors_in_flight) {
    many_descriptors();
    long done = 0;
    int last = -1;
    for (int depth = 0; depth < 400 && done < AMOUNT; depth++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
            break;
        for (long written; (written = write(ends[1], piece, 4096)) > 0;)
            done += written;
        if (last >= 0) {
            char control[CMSG_SPACE(sizeof(int))] = {0};
            struct iovec byte = {piece, 1};
            struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &last, sizeof(int));
            if (sendmsg(ends[0], &message, 0) >= 0)
                close(last);
        }
        last = ends[1];
    }
    held("%ld", done);
}

ATTACK(memory, messages_of_queues) {
    long done = 0;
    for (int number = 0; number < 256 && done < AMOUNT; number++) {
        struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 8192};
        char name[32];
        snprintf(name, sizeof name, "/flood%d", number);
        mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attributes);
        if (queue < 0)
            break;
        while (!mq_send(queue, piece, 8192, 0))
            done += 8192;
    }
    held("%ld", done);
}

/* A page of tables for every 2 MiB of addresses that have one page. */
ATTACK(memory, tables_of_pages) {
    long pages = AMOUNT / 4096;
    char *map = mmap(NULL, pages << 21, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        held("0");
    volatile char sum = 0;
    for (long page = 0; page < pages; page++)
        sum += map[page << 21];
    held("%ld", AMOUNT);
}

ATTACK(memory, small_mappings) {
    long count = 0;
    for (; count < 60000; count++)
        if (mmap(NULL, 4096, count & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            break;
    held("%ld", count * 184);
}

ATTACK(memory, descriptors) {
    many_descriptors();
    long count = 0;
    while (count < 200000 && open("/dev/null", O_RDONLY) >= 0)
        count++;
    held("%ld", count * 256);
}

ATTACK(memory, watches_of_epoll) {
    many_descriptors();
    int files[64], watched = 0;
    for (int index = 0; index < 64; index++)
        if (pipe((int[2]){0, 0}) == 0)
            files[watched++] = 3 + 2 * index;
    long count = 0;
    for (int instance; count < 100000 && (instance = epoll_create1(0)) >= 0;)
        for (int index = 0; index < watched; index++) {
            struct epoll_event event = {.events = EPOLLIN};
            if (epoll_ctl(instance, EPOLL_CTL_ADD, files[index], &event) == 0)
                count++;
        }
    held("%ld", count * 128);
}

ATTACK(memory, timers) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    long count = 0;
    while (count < 100000 && !timer_create(CLOCK_MONOTONIC, &event, &timer))
        count++;
    held("%ld", count * 256);
}

ATTACK(memory, names_that_do_not_exist) {
    char name[256];
    long count = 0;
    for (; count < 60000; count++) {
        snprintf(name, sizeof name, "/tmp/%0200ld", count);
        access(name, F_OK);
    }
    held("%ld", count * 192);
}

ATTACK(memory, attributes_of_files) {
    long done = 0;
    for (int file = 0; file < 4096 && done < AMOUNT; file++) {
        char name[64];
        snprintf(name, sizeof name, "/dev/shm/attributes%d", file);
        close(open(name, O_CREAT | O_WRONLY, 0600));
        if (setxattr(name, "user.x", piece, 65536, 0) && setxattr(name, "trusted.x", piece, 65536, 0))
            break;
        done += 65536;
    }
    held("%ld", done);
}

ATTACK(memory, mappings_of_one_file_by_many) {
    int file = open("/tmp/mapped", O_CREAT | O_RDWR, 0600), made = 0;
    if (ftruncate(file, 1 << 20))
        held("0");
    for (; made < 20; made++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            for (int map = 0; map < 5000; map++)
                if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, (map % 200) << 12) == MAP_FAILED)
                    break;
            pause();
            _exit(0);
        }
    }
    int all = made;
    held("%ld", (long)all * 5000 * 184 / 2);
}

/* Stacks of the kernel, 16 KiB each. */
ATTACK(memory, processes) {
    long made = 0;
    for (; made < 500; made++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            pause();
            _exit(0);
        }
    }
    held("%ld", made * 16384);
}

ATTACK(memory, zombies) {
    long made = 0;
    for (; made < 500; made++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0)
            _exit(0);
    }
    held("%ld", made * 4096);
}
