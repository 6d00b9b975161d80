/* Attacks on the fair share of others: scheduling, I/O, the choice of whom to kill, limits. */
#include "attack.h"

#include <sys/resource.h>

ATTACK(priorities, real_time_first_come) {
    struct sched_param parameters = {.sched_priority = 99};
    must_fail(sched_setscheduler(0, SCHED_FIFO, &parameters));
}

ATTACK(priorities, real_time_in_turn) {
    struct sched_param parameters = {.sched_priority = 1};
    must_fail(sched_setscheduler(0, SCHED_RR, &parameters));
}

ATTACK(priorities, deadlines) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {48, 6, 0, 0, 0, 10000000, 20000000, 20000000};
    must_fail(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

ATTACK(priorities, negative_nice) {
    if (setpriority(PRIO_PROCESS, 0, -20) < 0)
        held("%s", strerror(errno));
    errno = 0;
    int now = getpriority(PRIO_PROCESS, 0);
    if (now < 0)
        broke("nice is %d", now);
    held("nice is %d", now);
}

ATTACK(priorities, real_time_disk) { must_fail(syscall(SYS_ioprio_set, 1, 0, 1 << 13)); }

ATTACK(priorities, never_killed_for_memory) { must_not_write("/proc/self/oom_score_adj", "-1000"); }

ATTACK(priorities, the_agent_never_killed_for_memory) { must_not_write("/proc/1/oom_score_adj", "-1000"); }

ATTACK(priorities, more_processes_than_the_hard_limit) {
    struct rlimit limit;
    getrlimit(RLIMIT_NPROC, &limit);
    if (limit.rlim_max == RLIM_INFINITY)
        held("the control group limits processes");
    limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
    must_fail(setrlimit(RLIMIT_NPROC, &limit));
}

ATTACK(priorities, more_locked_memory) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY}, before;
    getrlimit(RLIMIT_MEMLOCK, &before);
    if (before.rlim_max == RLIM_INFINITY)
        held("it is not limited but by the control group");
    must_fail(setrlimit(RLIMIT_MEMLOCK, &limit));
}

ATTACK(priorities, more_descriptors_than_the_kernel_allows) {
    struct rlimit limit = {1 << 30, 1 << 30};
    must_fail(setrlimit(RLIMIT_NOFILE, &limit));
}
