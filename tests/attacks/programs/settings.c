/* Attacks on settings of the host: by files of the kernel and by calls. */
#include "attack.h"

#include <sys/swap.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>

ATTACK(settings, the_program_for_core_dumps) { must_not_write("/proc/sys/kernel/core_pattern", "|/tmp/x"); }

ATTACK(settings, the_program_that_loads_modules) { must_not_write("/proc/sys/kernel/modprobe", "/tmp/x"); }

ATTACK(settings, the_program_for_device_events) { must_not_write("/sys/kernel/uevent_helper", "/tmp/x"); }

ATTACK(settings, the_program_for_power_off) { must_not_write("/proc/sys/kernel/poweroff_cmd", "/tmp/x"); }

ATTACK(settings, a_binary_format) { must_not_write("/proc/sys/fs/binfmt_misc/register", ":x:M::\\x7fX::/tmp/x:CF"); }

ATTACK(settings, the_host_name) { must_not_write("/proc/sys/kernel/hostname", "owned"); }

ATTACK(settings, the_host_name_by_call) { must_fail(sethostname("owned", 5)); }

ATTACK(settings, the_domain_name_by_call) { must_fail(setdomainname("owned", 5)); }

ATTACK(settings, forwarding) { must_not_write("/proc/sys/net/ipv4/ip_forward", "1"); }

ATTACK(settings, the_range_of_ping) { must_not_write("/proc/sys/net/ipv4/ping_group_range", "0 1"); }

ATTACK(settings, the_next_process_id) { must_not_write("/proc/sys/kernel/ns_last_pid", "1"); }

ATTACK(settings, the_number_of_user_namespaces) { must_not_write("/proc/sys/user/max_user_namespaces", "100000"); }

ATTACK(settings, magic_sysrq) { must_not_write("/proc/sysrq-trigger", "h"); }

ATTACK(settings, interrupts_of_a_processor) { must_not_write("/proc/irq/default_smp_affinity", "1"); }

ATTACK(settings, a_processor_taken_away) { must_not_write("/sys/devices/system/cpu/cpu1/online", "0"); }

ATTACK(settings, a_scan_of_the_bus) { must_not_write("/sys/bus/pci/rescan", "1"); }

ATTACK(settings, merging_of_pages) { must_not_write("/sys/kernel/mm/ksm/run", "1"); }

ATTACK(settings, the_size_of_packets) { must_not_write("/sys/class/net/eth0/mtu", "68"); }

ATTACK(settings, a_file_of_the_firmware) { must_not_write("/sys/firmware/efi/vars/new_var", "x"); }

/* A trigger of `/proc/pressure` starts a thread of the kernel that watches the whole host. */
ATTACK(settings, a_watch_on_the_hosts_pressure) { must_not_write("/proc/pressure/memory", "some 150000 2000000"); }

ATTACK(settings, the_clock) {
    struct timeval now = {0};
    must_fail(settimeofday(&now, NULL));
}

ATTACK(settings, the_clock_by_id) {
    struct timespec now = {0};
    must_fail(clock_settime(CLOCK_REALTIME, &now));
}

ATTACK(settings, the_speed_of_the_clock) {
    struct timex change = {.modes = ADJ_FREQUENCY};
    must_fail(adjtimex(&change));
}

ATTACK(settings, swap) { must_fail(swapon("/tmp/below", 0)); }

/* Only the numbers that have no effect: `Ctrl-Alt-Del` off. */
ATTACK(settings, restarting) { must_fail(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL)); }

ATTACK(settings, the_kernels_log) {
    char text[4096];
    must_fail(syscall(SYS_syslog, 3, text, sizeof text));
}

ATTACK(settings, accounting_of_processes) { must_fail(syscall(SYS_acct, "/tmp/acct")); }

ATTACK(settings, quotas) { must_fail(syscall(SYS_quotactl, 0x80000100 /* Q_SYNC */, NULL, 0, NULL)); }

ATTACK(settings, quotas_by_descriptor) { must_fail(syscall(CALL_QUOTACTL_FD, open("/", O_RDONLY), 0x80000100, 0, NULL)); }
