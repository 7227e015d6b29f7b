/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets at the sockets of a cgroup. Nearly all are plain TCP or UDP: without options, sent by a socket of that protocol. One
 * look recognises those; the socket call or sk_lookup has evaluated them. All others are parsed in full. Of those, TCP of TCP's own
 * sockets has been evaluated, too.
 */
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>

#include "arming.h"
#include "ip.h"
#include "kernel.h"
#include "policy_maps.h"

#define PASS 1
#define DROP 0

#define LOOPBACK_DEVICE 1 /* ifindex of lo in every namespace */
#define PACKET_LOOPBACK 5 /* pkt_type of multicast and broadcast that is looped back to the sender's host */

#define HEADERS 6 /* extension headers that are parsed */

#define ICMP_ECHO 8
#define ICMP_TIMESTAMP 13
#define ICMP_ADDRESS 17
#define ICMP_EXT_ECHO 42 /* RFC 8335 */
#define ICMP_EXT_ECHOREPLY 43
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_EXT_ECHO_REQUEST 160
#define ICMPV6_EXT_ECHO_REPLY 161

#define SOCK_RAW 3
#define PROTOCOL_IGMP 2

#define OPTION_END 0
#define OPTION_NOTHING 1
#define OPTION_LOOSE_ROUTE 131
#define OPTION_STRICT_ROUTE 137

struct packet {
	struct address from, to;
	u32 transport; /* offset of the transport header */
	u16 from_port; /* network order; 0 for protocols without ports */
	u16 to_port;
	u8 protocol;
	bool is_control; /* needed by every network: ICMP errors, neighbour discovery, IGMP and MLD, ping replies */
	bool is_routed;	 /* has a source route, which leads it elsewhere first */
};

/* Whether programs of this type have bpf_get_netns_cookie() (6.15). If not, the kernel's own types are read. */
const volatile bool has_netns_helper = false;

/* In programs of a cgroup `sk` is the sending or receiving socket: never a request socket, and never NULL. */
static __always_inline const struct sock *socket_of(struct __sk_buff *skb)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);

	return bpf_rdonly_cast(packet->sk, bpf_core_type_id_kernel(struct sock));
}

static __always_inline u64 netns_of(struct __sk_buff *skb)
{
	if (has_netns_helper)
		return bpf_get_netns_cookie(skb);
	return may_read_kernel ? socket_of(skb)->__sk_common.skc_net.net->net_cookie : 0;
}

/*
 * TCP or UDP without options or extension headers; 0: anything else. The `asm` keeps the compiler from merging the two loads into
 * one with a variable offset: that is pointer arithmetic for which the verifier demands CAP_PERFMON.
 */
static __always_inline u32 plain_protocol(const struct __sk_buff *skb)
{
	const u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 protocol = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (data + IPV4_HEADER > end || data[0] != 0x45)
			return 0;
		protocol = data[9];
		__asm__ volatile("" : "+r"(protocol));
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (data + IPV6_HEADER > end)
			return 0;
		protocol = data[6];
		__asm__ volatile("" : "+r"(protocol));
	}
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ? protocol : 0;
}

/* A program's raw socket, which neither calls nor sk_lookup evaluate. Raw sockets of the kernel itself do not count. */
static __always_inline bool is_raw_socket(struct __sk_buff *skb)
{
	const struct sock *sock;

	if (!may_read_kernel)
		return false;
	sock = socket_of(skb);
	return sock->sk_type == SOCK_RAW && !BPF_CORE_READ_BITFIELD(sock, sk_kern_sock);
}

static __always_inline bool is_from_inside(const struct __sk_buff *skb)
{
	return skb->ifindex == LOOPBACK_DEVICE || skb->pkt_type == PACKET_LOOPBACK;
}

/* Whether an ICMP packet is control. Requests may be refused; without the others a host finds no neighbours and sees no errors. */
static __always_inline bool is_control(struct __sk_buff *skb, u32 at, bool v6)
{
	u8 type;

	if (bpf_skb_load_bytes(skb, at, &type, sizeof(type)))
		return false;
	if (v6)
		return type != ICMPV6_ECHO_REQUEST && type != ICMPV6_EXT_ECHO_REQUEST && type != ICMPV6_EXT_ECHO_REPLY;
	return type != ICMP_ECHO && type != ICMP_TIMESTAMP && type != ICMP_ADDRESS && type != ICMP_EXT_ECHO &&
	       type != ICMP_EXT_ECHOREPLY;
}

static __always_inline void read_transport(struct __sk_buff *skb, struct packet *packet, bool v6)
{
	u16 ports[2];

	switch (packet->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		if (bpf_skb_load_bytes(skb, packet->transport, ports, sizeof(ports))) {
			packet->protocol = PROTOCOL_OTHER;
			return;
		}
		packet->from_port = ports[0];
		packet->to_port = ports[1];
		return;
	case PROTOCOL_IGMP:
		packet->is_control = !v6;
		return;
	case PROTOCOL_ICMP:
		packet->is_control = !v6 && is_control(skb, packet->transport, false);
		return;
	case PROTOCOL_ICMPV6:
		packet->is_control = v6 && is_control(skb, packet->transport, true);
		return;
	}
}

/* Whether the options of an IPv4 header, at most 40 bytes, contain a source route. */
static __noinline bool has_route_option(struct __sk_buff *skb, u32 end)
{
	u32 at = IPV4_HEADER;

	for (int i = 0; i < 40 && at < end; i++) {
		u8 option[2] = {};

		if (bpf_skb_load_bytes(skb, at, option, at + 1 < end ? 2 : 1))
			return true; /* unreadable: not trusted */
		if (option[0] == OPTION_END)
			return false;
		if (option[0] == OPTION_LOOSE_ROUTE || option[0] == OPTION_STRICT_ROUTE)
			return true;
		at += option[0] == OPTION_NOTHING || option[1] < 2 ? 1 : option[1];
		at &= 0xff; /* never changes the value: the verifier needs a bound */
	}
	return false;
}

static __always_inline bool read_ipv4(struct __sk_buff *skb, struct packet *packet)
{
	struct ipv4_header header;

	if (bpf_skb_load_bytes(skb, 0, &header, sizeof(header)))
		return false;
	address_set_v4(&packet->from, header.from);
	address_set_v4(&packet->to, header.to);
	packet->transport = ipv4_header_size(&header);
	packet->protocol = header.protocol;
	packet->is_routed = packet->transport > IPV4_HEADER && has_route_option(skb, packet->transport);
	if (header.fragment & IPV4_LATER_FRAGMENT)
		packet->protocol = PROTOCOL_OTHER;
	else
		read_transport(skb, packet, false);
	return true;
}

/* Skips extension headers. False: there are more than HEADERS, or they cannot be read. */
static __noinline bool read_extensions(struct __sk_buff *skb, struct packet *packet)
{
	for (int i = 0; i <= HEADERS; i++) {
		struct ipv6_extension header;
		u32 size;

		if (!is_ipv6_extension(packet->protocol))
			return true;
		if (packet->protocol == HEADER_ROUTING)
			packet->is_routed = true;
		if (bpf_skb_load_bytes(skb, packet->transport, &header, sizeof(header)))
			return false;
		size = ipv6_extension_size(packet->protocol, &header);
		if (is_later_fragment(packet->protocol, &header)) {
			packet->protocol = PROTOCOL_OTHER;
			return true;
		}
		packet->protocol = header.next;
		packet->transport = (packet->transport + size) & 0xffff;
	}
	return false;
}

static __always_inline bool read_ipv6(struct __sk_buff *skb, struct packet *packet)
{
	struct ipv6_header header;

	if (bpf_skb_load_bytes(skb, 0, &header, sizeof(header)))
		return false;
	packet->from = header.from;
	packet->to = header.to;
	packet->protocol = header.next;
	packet->transport = IPV6_HEADER;
	if (read_extensions(skb, packet)) {
		read_transport(skb, packet, true);
	} else {
		packet->protocol = PROTOCOL_OTHER;
		packet->is_routed = true; /* unreadable: not trusted */
	}
	return true;
}

/*
 * Whether the packet is of a TCP connection, whatever headers stand before TCP's: connect(), or sk_lookup, has evaluated the
 * connection. To evaluate its segments would deny all answers, since they do not say which end has opened it.
 */
static __always_inline bool is_of_connection(struct __sk_buff *skb, const struct packet *packet)
{
	return packet->protocol == IPPROTO_TCP && !is_raw_socket(skb);
}

/* False: not an IP packet. */
static __always_inline bool read_packet(struct __sk_buff *skb, struct packet *packet)
{
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_ipv4(skb, packet);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && read_ipv6(skb, packet);
}
