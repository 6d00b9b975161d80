/* Attacks on the file system of the host below a volume, which is in the directory `/data` of the sandbox: unlike the root, it is no
 * overlay, and requests reach the host's own pool. */
#include "attack.h"

#include <sys/xattr.h>

static int volume(void) { return open("/data", O_RDONLY | O_DIRECTORY); }

#define ON_THE_VOLUME(name, request, ...)                                                                              \
    ATTACK(volumes, name) {                                                                                            \
        uint64_t argument[512] = {__VA_ARGS__};                                                                        \
        must_fail(ioctl(volume(), request, argument));                                                                 \
    }

/* A request that names something new: the name is behind the first eight bytes. */
static void named(unsigned long request, const char *name) {
    char argument[4096] = {0};
    int64_t descriptor = volume();
    memcpy(argument, &descriptor, sizeof descriptor);
    strcpy(argument + 8, name);
    must_fail(ioctl(volume(), request, argument));
}

ATTACK(volumes, a_subvolume_without_a_limit) { named(0x5000940e, "unlimited"); }

ATTACK(volumes, a_snapshot_of_itself) { named(0x50009401, "snapshot"); }

/* The second form has its name behind 56 bytes. */
static void named_again(unsigned long request, const char *name) {
    char argument[4096] = {0};
    int64_t descriptor = volume();
    memcpy(argument, &descriptor, sizeof descriptor);
    strcpy(argument + 56, name);
    must_fail(ioctl(volume(), request, argument));
}

ATTACK(volumes, a_subvolume_by_the_second_request) { named_again(0x50009418, "second"); }

ATTACK(volumes, a_snapshot_by_the_second_request) { named_again(0x50009417, "second"); }

ATTACK(volumes, removing_the_subvolume_beside) { named(0x5000940f, "../content"); }

ON_THE_VOLUME(quotas_off, 0xc0109428, 2)
ON_THE_VOLUME(another_quota_group, 0x4010942a, 1, 1ULL << 48)
ON_THE_VOLUME(no_limit, 0x8030942b, 0, 0, 1, ~0ULL, ~0ULL, 0)
ON_THE_VOLUME(another_quota_group_for_it, 0x40189429, 1, 257, 1ULL << 48)
ON_THE_VOLUME(a_search_of_the_trees, 0xd0009411, 1, 0, ~0ULL, 0, ~0ULL, 0, ~0ULL, ~0ULL)
ON_THE_VOLUME(what_the_pool_is_made_of, 0x8400941f, 0)
ON_THE_VOLUME(how_full_the_pool_is, 0xc0109414, 16, 0)
ON_THE_VOLUME(the_device_below, 0xd000941e, 1)
ON_THE_VOLUME(a_device_more, 0x5000940a, 0)
ON_THE_VOLUME(a_device_less, 0x5000940b, 0)
ON_THE_VOLUME(a_balance, 0x5000940c, 0)
ON_THE_VOLUME(a_scrub, 0xc400941b, 1, 0, ~0ULL)
ON_THE_VOLUME(a_commit_of_the_whole_pool, 0x80089418, 0)
ON_THE_VOLUME(waiting_for_a_commit, 0x40089416, 0)
ON_THE_VOLUME(defragmentation, 0x50009402, 0)
ON_THE_VOLUME(a_default_subvolume, 0x40089413, 5)
ON_THE_VOLUME(files_by_their_place_on_the_disk, 0xc0389424, 1 << 20, 4096, 0, 0, 0, 0)
ON_THE_VOLUME(paths_by_their_number, 0xc0389423, 256, 4096, 0, 0)
ON_THE_VOLUME(another_state_of_features, 0x40309439, 0)
ON_THE_VOLUME(the_label_of_the_pool, 0x41009432, 0x64656e776fULL)
ON_THE_VOLUME(freezing_the_pool, 0xc0045877, 0)
ON_THE_VOLUME(trimming_the_pool, 0xc0185879, 0)
ON_THE_VOLUME(shutting_the_pool_down, 0x8004587d, 0)
ON_THE_VOLUME(an_immutable_volume, 0x40086602, 0x10)

ATTACK(volumes, a_redirect_for_an_overlay_above) { must_fail(setxattr("/data", "trusted.overlay.redirect", "/", 1, 0)); }

ATTACK(volumes, a_property_of_btrfs) { must_fail(setxattr("/data", "btrfs.subvolume", "x", 1, 0)); }

ATTACK(volumes, a_link_into_the_root) {
    close(open("/data/mine", O_CREAT | O_WRONLY, 0600));
    must_fail(link("/data/mine", "/tmp/mine"));
}

ATTACK(volumes, a_rename_into_the_root) {
    close(open("/data/mine", O_CREAT | O_WRONLY, 0600));
    must_fail(rename("/data/mine", "/tmp/mine"));
}

ATTACK(volumes, moving_the_mount_point) { must_fail(rename("/data", "/elsewhere")); }

ATTACK(volumes, up_from_the_volume) {
    struct stat root, above;
    int directory = volume();
    if (stat("/", &root) || fstatat(directory, "..", &above, 0))
        held("%s", strerror(errno));
    if (root.st_ino == above.st_ino && root.st_dev == above.st_dev)
        held("above the volume is the sandbox's root");
    broke("above the volume is inode %lu of device %lx", (long)above.st_ino, (long)above.st_dev);
}

/* The volume's own root is renamed below the feet of a process that walks up from a directory in it. */
ATTACK(volumes, up_from_a_directory_that_is_moved) {
    struct stat here;
    mkdir("/data/a", 0700);
    mkdir("/data/a/b", 0700);
    mkdir("/data/c", 0700);
    if (chdir("/data/a/b") || rename("/data/a/b", "/data/c/b"))
        held("%s", strerror(errno));
    for (int up = 0; up < 64; up++)
        if (chdir(".."))
            break;
    struct stat root;
    if (stat(".", &here) || stat("/", &root))
        held("%s", strerror(errno));
    if (here.st_ino == root.st_ino && here.st_dev == root.st_dev)
        held("up ends at the sandbox's root");
    broke("arrived at inode %lu of device %lx", (long)here.st_ino, (long)here.st_dev);
}

ATTACK(volumes, a_device_on_the_volume) {
    if (mknod("/data/memory", S_IFCHR | 0600, 1 << 8 | 1))
        held("%s", strerror(errno));
    must_fail(open("/data/memory", O_RDONLY));
}
