/* Attacks on what the mounts hide: by mounting, by walking up, by file handles. */
#include "attack.h"

#include <sys/mount.h>

ATTACK(mounts, a_memory_file_system) { must_fail(mount("none", "/mnt", "tmpfs", 0, "")); }

ATTACK(mounts, a_bind_of_the_root) { must_fail(mount("/", "/mnt", NULL, MS_BIND | MS_REC, NULL)); }

ATTACK(mounts, settings_made_writable) { must_fail(mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL)); }

ATTACK(mounts, shared_propagation) { must_fail(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL)); }

ATTACK(mounts, a_control_group_hierarchy) { must_fail(mount("none", "/mnt", "cgroup2", 0, NULL)); }

ATTACK(mounts, an_old_control_group_with_a_release_agent) { must_fail(mount("none", "/mnt", "cgroup", 0, "memory")); }

ATTACK(mounts, a_disk_image_of_ones_own) { must_fail(mount("/dev/loop0", "/mnt", "ext4", 0, NULL)); }

ATTACK(mounts, a_file_system_context) { must_fail(syscall(CALL_FSOPEN, "proc", 0)); }

ATTACK(mounts, a_context_of_the_root) { must_fail(syscall(CALL_FSPICK, AT_FDCWD, "/", 0)); }

ATTACK(mounts, a_clone_of_the_tree) { must_fail(syscall(CALL_OPEN_TREE, AT_FDCWD, "/", 1 | AT_RECURSIVE)); }

ATTACK(mounts, a_clone_of_the_tree_with_attributes) {
    uint64_t attributes[4] = {0};
    must_fail(syscall(CALL_OPEN_TREE_ATTR, AT_FDCWD, "/", 1, attributes, sizeof attributes));
}

ATTACK(mounts, moving_a_mask_away) { must_fail(syscall(CALL_MOVE_MOUNT, AT_FDCWD, "/proc/kcore", AT_FDCWD, "/tmp", 0)); }

ATTACK(mounts, clearing_read_only) {
    uint64_t attributes[4] = {0, 1 /* MOUNT_ATTR_RDONLY */};
    must_fail(syscall(CALL_MOUNT_SETATTR, AT_FDCWD, "/proc/sys", 0, attributes, sizeof attributes));
}

ATTACK(mounts, an_idmapped_mount) {
    int users = open("/proc/self/ns/user", O_RDONLY);
    uint64_t attributes[4] = {0x100000 /* MOUNT_ATTR_IDMAP */, 0, 0, (uint64_t)users};
    must_fail(syscall(CALL_MOUNT_SETATTR, AT_FDCWD, "/", 0x1000, attributes, sizeof attributes));
}

ATTACK(mounts, taking_a_mask_off) { must_fail(umount2("/proc/kcore", MNT_DETACH)); }

ATTACK(mounts, taking_the_root_off) { must_fail(umount2("/", MNT_DETACH)); }

ATTACK(mounts, pivoting) { must_fail(syscall(SYS_pivot_root, ".", ".")); }

/* The classic: a root below the working directory, then up and up. The oracle is the inode it arrives at. */
ATTACK(mounts, chroot_and_up) {
    struct stat init, here;
    mkdir("/tmp/below", 0700);
    int outside = open("/", O_RDONLY | O_DIRECTORY);
    if (stat("/proc/1/root", &init) || chroot("/tmp/below") || fchdir(outside))
        held("%s", strerror(errno));
    for (int up = 0; up < 64; up++)
        if (chdir(".."))
            break;
    stat(".", &here);
    if (here.st_ino == init.st_ino && here.st_dev == init.st_dev)
        held("up ends at the sandbox's own root");
    broke("arrived at device %lx, inode %lu", (long)here.st_dev, (long)here.st_ino);
}

ATTACK(mounts, up_from_the_root_of_init) {
    struct stat init, above;
    if (stat("/proc/1/root/.", &init) || stat("/proc/1/root/../../../..", &above))
        held("%s", strerror(errno));
    if (init.st_ino == above.st_ino && init.st_dev == above.st_dev)
        held("it is the same directory");
    broke("above the root is inode %lu", (long)above.st_ino);
}

ATTACK(mounts, up_from_the_directory_of_init) {
    struct stat root, above;
    if (stat("/", &root) || stat("/proc/1/cwd/../../../../..", &above))
        held("%s", strerror(errno));
    if (root.st_ino == above.st_ino && root.st_dev == above.st_dev)
        held("it is the sandbox's root");
    broke("above the directory is inode %lu", (long)above.st_ino);
}

/* Mounts of other namespaces, among them the host's. */
ATTACK(mounts, listing_other_mounts) {
    uint64_t request[4] = {32, 0xffffffffffffffffULL /* LSMT_ROOT */, 0, 1}, ids[64];
    must_fail(syscall(CALL_LISTMOUNT, request, ids, 64, 0));
}

ATTACK(mounts, asking_about_a_mount) {
    uint64_t request[4] = {32, 1, 0x3f, 0};
    char answer[1024];
    must_fail(syscall(CALL_STATMOUNT, request, answer, sizeof answer, 0));
}

struct handle {
    unsigned bytes;
    int type;
    unsigned id[8];
};

ATTACK(handles, a_handle_of_the_root) {
    struct handle handle = {.bytes = 32};
    int mount;
    must_fail(syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mount, 0));
}

ATTACK(handles, a_handle_on_a_volume_of_the_host) {
    struct handle handle = {8, 1, {256, 0}};
    int at = open("/run/sandcove", O_RDONLY);
    must_fail(syscall(SYS_open_by_handle_at, at, &handle, O_RDONLY));
}

ATTACK(handles, a_handle_of_a_process_of_the_host) {
    struct handle handle = {8, 0xf1, {1, 0}};
    must_fail(syscall(SYS_open_by_handle_at, -10002 /* FD_PIDFS_ROOT */, &handle, O_RDONLY));
}

ATTACK(handles, a_handle_of_a_namespace) {
    struct handle handle = {16, 0xf2, {0}};
    must_fail(syscall(SYS_open_by_handle_at, -10003 /* FD_NSFS_ROOT */, &handle, O_RDONLY));
}
