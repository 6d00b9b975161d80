/* Attacks through sockets: of rarely used protocols, and with requests that change the network. */
#include "attack.h"

#include <linux/netlink.h>
#include <sys/socket.h>

#define SOCKET(name, family, type, protocol)                                                                           \
    ATTACK(sockets, name) { must_fail(socket(family, type, protocol)); }

SOCKET(socket_of_express_data_path, 44, SOCK_RAW, 0)
SOCKET(socket_of_can, 29, SOCK_RAW, 1)
SOCKET(socket_of_can_broadcast_manager, 29, SOCK_DGRAM, 2)
SOCKET(socket_of_bluetooth, 31, SOCK_RAW, 1)
SOCKET(socket_of_nfc, 39, SOCK_SEQPACKET, 0)
SOCKET(socket_of_rds, 21, SOCK_SEQPACKET, 0)
SOCKET(socket_of_kernel_connection_multiplexer, 41, SOCK_DGRAM, 0)
SOCKET(socket_of_shared_memory_communications, 43, SOCK_STREAM, 0)
SOCKET(socket_of_qualcomm_routers, 42, SOCK_DGRAM, 0)
SOCKET(socket_of_phones, 35, SOCK_DGRAM, 0)
SOCKET(socket_of_afs, 33, SOCK_DGRAM, 2)
SOCKET(socket_of_management_components, 45, SOCK_DGRAM, 0)
SOCKET(socket_of_ppp, 24, SOCK_DGRAM, 0)
SOCKET(socket_of_x25, 9, SOCK_SEQPACKET, 0)
SOCKET(socket_of_ax25, 3, SOCK_DGRAM, 0)
SOCKET(socket_of_link_layer_control, 26, SOCK_STREAM, 0)
SOCKET(socket_of_low_power_radio, 36, SOCK_DGRAM, 0)
SOCKET(socket_of_caif, 37, SOCK_STREAM, 0)
SOCKET(socket_of_appletalk, 5, SOCK_DGRAM, 0)
SOCKET(socket_of_ipx, 4, SOCK_DGRAM, 0)
SOCKET(socket_of_multipath_tcp, AF_INET, SOCK_STREAM, 262)
SOCKET(socket_of_multipath_tcp_over_v6, AF_INET6, SOCK_STREAM, 262)
SOCKET(socket_of_light_udp, AF_INET, SOCK_DGRAM, 136)
SOCKET(socket_of_homa, AF_INET, SOCK_DGRAM, 146)
SOCKET(netlink_of_the_connector, AF_NETLINK, SOCK_DGRAM, 11)
SOCKET(netlink_of_iscsi, AF_NETLINK, SOCK_RAW, 8)
SOCKET(netlink_of_routing_lookups, AF_NETLINK, SOCK_RAW, 10)
SOCKET(netlink_of_scsi, AF_NETLINK, SOCK_RAW, 18)
SOCKET(netlink_of_rdma, AF_NETLINK, SOCK_RAW, 20)
SOCKET(netlink_of_security_modules, AF_NETLINK, SOCK_RAW, 7)

/* Links, addresses and rules of the sandbox's own network namespace: whoever changes them reaches much of the kernel. */
static void change_network(uint16_t type, uint16_t more) {
    struct {
        struct nlmsghdr header;
        char body[128];
    } request = {{sizeof request, type, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | more, 1, 0}, {0}};
    int link = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    char answer[4096];
    if (link < 0 || send(link, &request, sizeof request, 0) < 0 || recv(link, answer, sizeof answer, 0) < 20)
        held("%s", strerror(errno));
    int error;
    memcpy(&error, answer + sizeof(struct nlmsghdr), sizeof error);
    if (error == -EPERM || error == -EACCES)
        held("%s", strerror(-error));
    broke("the kernel read the request: %d", error);
}

ATTACK(sockets, a_network_interface) { change_network(16, 0); }

ATTACK(sockets, a_route) { change_network(24, 0); }

ATTACK(sockets, a_queue_discipline) { change_network(36, 0); }

ATTACK(sockets, a_filter_of_packets_by_traffic_control) { change_network(44, 0); }

ATTACK(sockets, a_permanent_neighbour) { change_network(28, 0); }

ATTACK(sockets, a_second_network_namespace_by_number) { change_network(88, 0); }

ATTACK(sockets, tables_of_iptables) {
    char replace[256] = {0};
    int raw = socket(AF_INET, SOCK_RAW, 255);
    if (raw < 0)
        raw = socket(AF_INET, SOCK_DGRAM, 0);
    must_fail(setsockopt(raw, 0, 64 /* IPT_SO_SET_REPLACE */, replace, sizeof replace));
}

ATTACK(sockets, a_forced_buffer) {
    int size = 1 << 30;
    must_fail(setsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, 33 /* SO_RCVBUFFORCE */, &size, sizeof size));
}
