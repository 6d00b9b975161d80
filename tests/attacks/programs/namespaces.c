/* Attacks on the namespaces: new ones, those of others, those above. */
#include "attack.h"

/* The filter cannot read the flags of clone3, which are in memory. */
static long clone3(uint64_t flags, int descriptor) {
    uint64_t arguments[11] = {flags, 0, 0, 0, flags & CLONE_VFORK ? 0 : SIGCHLD};
    arguments[10] = (uint64_t)descriptor;
    long child = syscall(CALL_CLONE3, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return child;
}

ATTACK(namespaces, clone3_with_a_user_namespace) { must_fail(clone3(CLONE_NEWUSER, 0)); }

ATTACK(namespaces, clone3_with_a_time_namespace) { must_fail(clone3(0x80, 0)); }

ATTACK(namespaces, clone3_into_a_control_group) {
    int group = open("/sys/fs/cgroup", O_PATH | O_DIRECTORY);
    must_fail(clone3(0x200000000ULL, group));
}

/* Upper bits of the flags must not make the filter look elsewhere. */
ATTACK(namespaces, clone_with_stray_upper_bits) {
    long child = syscall(SYS_clone, 0xffffffff00000000UL | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    must_fail(child);
}

ATTACK(namespaces, vfork_style_clone_with_mounts) {
    long child = syscall(SYS_clone, CLONE_NEWNS | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    must_fail(child);
}

ATTACK(namespaces, unshare_of_everything) {
    must_fail(syscall(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC));
}

ATTACK(namespaces, unshare_of_control_groups) { must_fail(syscall(SYS_unshare, CLONE_NEWCGROUP)); }

ATTACK(namespaces, setns_by_the_pidfd_of_init) {
    long init = syscall(CALL_PIDFD_OPEN, 1, 0);
    must_fail(syscall(SYS_setns, init, CLONE_NEWNS | CLONE_NEWUSER));
}

ATTACK(namespaces, setns_to_the_users_of_init) {
    int file = open("/proc/1/ns/user", O_RDONLY);
    must_fail(syscall(SYS_setns, file, 0));
}

static void parent_of(const char *path) {
    int file = open(path, O_RDONLY);
    if (file < 0)
        held("open: %s", strerror(errno));
    must_fail(ioctl(file, 0xb702 /* NS_GET_PARENT */));
}

ATTACK(namespaces, the_user_namespace_above) { parent_of("/proc/self/ns/user"); }

ATTACK(namespaces, the_process_namespace_above) { parent_of("/proc/self/ns/pid"); }

/* Mount namespaces of the host are listed after ours. */
ATTACK(namespaces, the_mount_namespace_beside) {
    int file = open("/proc/self/ns/mnt", O_RDONLY);
    char info[32] = {16};
    long next = ioctl(file, _IOC(_IOC_READ, 0xb7, 11, 16), info);
    if (next < 0)
        next = ioctl(file, _IOC(_IOC_READ, 0xb7, 12, 16), info);
    must_fail(next);
}

ATTACK(namespaces, listing_namespaces) {
    uint64_t request[5] = {40}, ids[64];
    must_fail(syscall(CALL_LISTNS, request, ids, 64, 0));
}

ATTACK(namespaces, a_second_map_of_users) { must_not_write("/proc/self/uid_map", "0 0 4294967295\n"); }

ATTACK(namespaces, group_lists_switched_on_again) { must_not_write("/proc/self/setgroups", "deny"); }

ATTACK(namespaces, offsets_of_the_clock) { must_not_write("/proc/self/timens_offsets", "monotonic 864000 0\n"); }
