/* Attacks on the file systems below the sandbox: requests to them, and attributes that they act upon. */
#include "attack.h"

#include <sys/xattr.h>

static int root(void) { return open("/", O_RDONLY | O_DIRECTORY); }

#define ON_THE_ROOT(name, request, ...)                                                                                \
    ATTACK(filesystems, name) {                                                                                        \
        uint64_t argument[512] = {__VA_ARGS__};                                                                        \
        must_fail(ioctl(root(), request, argument));                                                                   \
    }

ON_THE_ROOT(freezing_the_root, 0xc0045877, 0)
ON_THE_ROOT(thawing_the_root, 0xc0045878, 0)
ON_THE_ROOT(trimming_the_root, 0xc0185879, 0)
ON_THE_ROOT(shutting_the_root_down, 0x8004587d, 0)
ON_THE_ROOT(an_immutable_root, 0x40086602, 0x10)
ON_THE_ROOT(another_project_for_the_root, 0x401c5820, 0, 1234ULL << 32)
ON_THE_ROOT(blocks_of_the_root, 1 /* FIBMAP */, 0)
ON_THE_ROOT(a_subvolume_in_the_root, 0x5000940e, 0)
ON_THE_ROOT(a_search_of_the_trees_below_the_root, 0xd0009411, 0)

/* The overlay's own attributes, which make it show other directories. */
ATTACK(filesystems, a_redirect_of_the_overlay) {
    mkdir("/tmp/redirected", 0755);
    must_fail(setxattr("/tmp/redirected", "trusted.overlay.redirect", "/../../..", 9, 0));
}

ATTACK(filesystems, an_opaque_directory_of_the_overlay) {
    mkdir("/tmp/redirected", 0755);
    must_fail(setxattr("/tmp/redirected", "trusted.overlay.opaque", "y", 1, 0));
}

ATTACK(filesystems, a_metacopy_of_the_overlay) {
    close(open("/tmp/metacopy", O_CREAT | O_WRONLY, 0600));
    must_fail(setxattr("/tmp/metacopy", "trusted.overlay.metacopy", "", 0, 0));
}

/* The overlay escapes attributes of its own names, or refuses them: they must not come into effect. */
ATTACK(filesystems, a_redirect_for_users) {
    mkdir("/tmp/usr", 0755);
    setxattr("/tmp/usr", "user.overlay.redirect", "/etc", 4, 0);
    if (!access("/tmp/usr/passwd", F_OK))
        broke("the directory shows another one");
    held("it has no effect");
}

ATTACK(filesystems, a_signature_of_integrity) { must_fail(setxattr("/bin/true", "security.ima", "x", 1, 0)); }

/* CVE-2022-0185, CVE-2023-0386 and their like begin with a mount; this one begins with a file of the lower layer. */
ATTACK(filesystems, a_hard_link_of_a_lower_file) {
    struct stat before, after;
    stat("/usr/bin/env", &before);
    if (link("/usr/bin/env", "/usr/bin/env-linked"))
        held("%s", strerror(errno));
    int file = open("/usr/bin/env-linked", O_WRONLY);
    if (file < 0 || write(file, "x", 1) < 0)
        held("%s", strerror(errno));
    stat("/usr/bin/env-linked", &after);
    held("copied: inode %lu, then %lu", (long)before.st_ino, (long)after.st_ino);
}
