/* Attacks through rarely used interfaces of the kernel, through other ways to call it, and on the filter itself. */
#include "attack.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>

static const char zeros[4096];

ATTACK(interfaces, a_map_of_bpf) {
    uint32_t attributes[32] = {2, 4, 4, 1};
    must_fail(syscall(SYS_bpf, 0, attributes, sizeof attributes));
}

ATTACK(interfaces, a_token_of_bpf) {
    uint32_t attributes[32] = {0};
    must_fail(syscall(SYS_bpf, 36, attributes, sizeof attributes));
}

ATTACK(interfaces, counters_of_ones_own) {
    uint32_t attributes[32] = {1, 128, 0};
    must_fail(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0));
}

ATTACK(interfaces, counters_of_a_processor) {
    uint32_t attributes[32] = {1, 128, 0};
    must_fail(syscall(SYS_perf_event_open, attributes, -1, 0, -1, 0));
}

ATTACK(interfaces, faults_handled_in_user_space) { must_fail(syscall(SYS_userfaultfd, 1)); }

ATTACK(interfaces, faults_handled_by_the_device) { must_fail(open("/dev/userfaultfd", O_RDWR)); }

ATTACK(interfaces, a_ring) {
    uint32_t parameters[30] = {0};
    must_fail(syscall(SYS_io_uring_setup, 8, parameters));
}

ATTACK(interfaces, a_ring_by_its_number) { must_fail(syscall(SYS_io_uring_register, 0, 0, NULL, 0)); }

ATTACK(interfaces, a_new_kernel) { must_fail(syscall(SYS_kexec_load, 0, 0, NULL, 0)); }

ATTACK(interfaces, a_new_kernel_from_a_file) { must_fail(syscall(SYS_kexec_file_load, 0, 0, 0, NULL, 4)); }

ATTACK(interfaces, a_module) { must_fail(syscall(SYS_init_module, zeros, sizeof zeros, "")); }

ATTACK(interfaces, a_module_from_a_file) { must_fail(syscall(SYS_finit_module, 0, "", 0)); }

ATTACK(interfaces, a_module_removed) { must_fail(syscall(SYS_delete_module, "dummy", O_NONBLOCK)); }

ATTACK(interfaces, watching_a_whole_mount) { must_fail(syscall(SYS_fanotify_init, 0x9 /* CLASS_NOTIF | FID */, O_RDONLY)); }

ATTACK(interfaces, memory_that_the_kernel_cannot_read) { must_fail(syscall(CALL_MEMFD_SECRET, 0)); }

ATTACK(interfaces, a_key) { must_fail(syscall(SYS_add_key, "user", "name", "x", 1, -3)); }

ATTACK(interfaces, a_key_that_starts_a_program) { must_fail(syscall(SYS_request_key, "user", "name", "x", -3)); }

ATTACK(interfaces, a_keyring_of_the_session) { must_fail(syscall(SYS_keyctl, 1, "name")); }

ATTACK(interfaces, a_guessed_key) {
    char text[64];
    must_fail(syscall(SYS_keyctl, 11, 0x2a3b4c5d, text, sizeof text));
}

ATTACK(interfaces, a_label_of_a_security_module) { must_fail(syscall(CALL_LSM_SET_SELF_ATTR, 100, zeros, 32, 0)); }

ATTACK(interfaces, pages_moved_between_nodes) { must_fail(syscall(SYS_move_pages, 0, 0, NULL, NULL, NULL, 0)); }

ATTACK(interfaces, pages_of_another_process_moved) { must_fail(syscall(SYS_migrate_pages, 1, 64, zeros, zeros)); }

ATTACK(interfaces, asynchronous_requests) { must_fail(syscall(SYS_io_setup, 128, (unsigned long[1]){0})); }

/* Says which pages of a file other sandboxes have read. */
ATTACK(interfaces, statistics_of_the_page_cache) {
    uint64_t range[2] = {0, 1 << 20}, counts[5];
    must_fail(syscall(CALL_CACHESTAT, open("/usr/bin/python3", O_RDONLY), range, counts, 0));
}

ATTACK(interfaces, attributes_by_the_new_call) {
    uint64_t attributes[3] = {0x10 /* immutable */};
    must_fail(syscall(CALL_FILE_SETATTR, AT_FDCWD, "/tmp", attributes, sizeof attributes, 0));
}

#ifdef __x86_64__
ATTACK(interfaces, ports_of_the_machine) { must_fail(syscall(SYS_iopl, 3)); }

ATTACK(interfaces, one_port_of_the_machine) { must_fail(syscall(SYS_ioperm, 0x80, 1, 1)); }

ATTACK(interfaces, segments) {
    char entries[64];
    must_fail(syscall(SYS_modify_ldt, 0, entries, sizeof entries));
}

/* getpid as a 32-bit program calls it: 20 there is writev here. */
static long by_interrupt(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(20L) : "r8", "r9", "r10", "r11", "memory");
    return result;
}

ATTACK(interfaces, calls_of_32_bit_programs) { in_a_child(by_interrupt); }

static long as_x32(void) { return syscall(0x40000000 | SYS_getpid); }

ATTACK(interfaces, calls_with_32_bit_pointers) { in_a_child(as_x32); }

/* mount of 32-bit programs is 21, which is access here. */
static long mount_by_interrupt(void) {
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "0"(21L), "b"(0L), "c"(0L), "d"(0L), "S"(0L), "D"(0L)
                     : "r8", "r9", "r10", "r11", "memory");
    /* EFAULT and the like mean that the kernel looked at the arguments. */
    return result == -EPERM || result == -ENOSYS ? -1 : 0;
}

ATTACK(interfaces, mounts_of_32_bit_programs) { in_a_child(mount_by_interrupt); }

/* A tracer that changes a harmless call, after the filter may have looked at it, into one that is refused. */
ATTACK(interfaces, a_call_rewritten_by_a_tracer) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        syscall(SYS_getppid);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    struct user_regs_struct registers;
    for (int stops = 0; stops < 16; stops++) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) || waitpid(child, &status, 0) < 0 || WIFEXITED(status))
            break;
        ptrace(PTRACE_GETREGS, child, NULL, &registers);
        if (registers.orig_rax != SYS_getppid)
            continue;
        registers.orig_rax = SYS_unshare;
        registers.rdi = CLONE_NEWUSER;
        ptrace(PTRACE_SETREGS, child, NULL, &registers);
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        waitpid(child, &status, 0);
        ptrace(PTRACE_GETREGS, child, NULL, &registers);
        long result = (long)registers.rax;
        kill(child, SIGKILL);
        if (result < 0)
            held("%s", strerror((int)-result));
        broke("unshare went through");
    }
    kill(child, SIGKILL);
    held("the call was not seen");
}
#endif

/* A tracer that asks for its child's filters to be ignored. */
ATTACK(interfaces, filters_suspended_by_a_tracer) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    long result = ptrace(0x4206 /* SEIZE */, child, NULL, (void *)0x200000L /* SUSPEND_SECCOMP */);
    int error = errno;
    kill(child, SIGKILL);
    errno = error;
    must_fail(result);
}

ATTACK(interfaces, reading_the_filter) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    long result = ptrace(0x420c /* SECCOMP_GET_FILTER */, child, 0, NULL);
    int error = errno;
    kill(child, SIGKILL);
    errno = error;
    must_fail(result);
}

ATTACK(interfaces, the_filter_switched_off) { must_fail(prctl(PR_SET_SECCOMP, 0)); }

ATTACK(interfaces, another_picture_of_memory) { must_fail(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, open("/bin/true", O_RDONLY), 0, 0)); }

ATTACK(interfaces, a_capability_back_in_the_bounding_set) {
    unsigned header[2] = {0x20080522, 0}, sets[6] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    must_fail(syscall(SYS_capset, header, sets));
}

ATTACK(interfaces, an_ambient_capability) { must_fail(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0)); }
