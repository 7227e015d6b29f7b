/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets that reach a pod without sk_lookup, which sees only unicast TCP and UDP: multicast and broadcast, other protocols, and
 * what raw sockets receive besides.
 */
#pragma once

#include "packet_out.h"

/* Flags of rtable.rt_flags. */
#define ROUTE_TO_MANY (0x10000000 | 0x20000000) /* RTCF_BROADCAST, RTCF_MULTICAST */
/* Flag in sk_buff._skb_refdst. */
#define NO_REFERENCE 1ul

#define TCP_SYN 2
#define TCP_ACK 16

/* The kernel's routing result, which knows each network's broadcast addresses. Reads yield 0 if the packet has no route. */
static __always_inline struct rtable *route_of(struct __sk_buff *skb)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);

	return bpf_rdonly_cast((void *)(packet->_skb_refdst & ~NO_REFERENCE), bpf_core_type_id_kernel(struct rtable));
}

/* Whether a datagram without options is multicast or broadcast. */
static __always_inline bool is_for_many(struct __sk_buff *skb)
{
	const u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return data + IPV6_HEADER > end || data[24] == 0xff;
	if (may_read_kernel)
		return route_of(skb)->rt_flags & ROUTE_TO_MANY;
	return skb->pkt_type || data + IPV4_HEADER > end || data[16] >> 4 == 0xe;
}

static __always_inline bool opens_connection(struct __sk_buff *skb)
{
	u32 at = (skb->protocol == bpf_htons(ETH_P_IPV6) ? IPV6_HEADER : IPV4_HEADER) + 13;
	u8 flags;

	return bpf_skb_load_bytes(skb, at, &flags, sizeof(flags)) || (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* Whether the sender is the node itself, whose probes are always allowed. */
static __always_inline bool is_from_node(const struct address *from)
{
	u32 zero = 0, *generation = bpf_map_lookup_elem(&current, &zero);
	struct identity sender;

	return generation && identity_of(*generation, from, &sender) && sender.number == IDENTITY_NODE;
}

static __always_inline int evaluate_received(u64 netns, const struct packet *packet)
{
	struct asked asked = {
		.netns = netns, .peer = { .address = packet->from, .port = packet->from_port },
		.port = bpf_ntohs(packet->to_port), .direction = INGRESS,
	};
	struct policed pod = {};
	u32 verdict;

	if (!READ_ENTRY(&policed_pods, &netns, &pod))
		return PASS;
	ask_by_protocol(&asked, packet->protocol);
	identify(&asked, &pod, ADDRESS_OF_OTHERS);
	verdict = evaluate(&pod, &asked, asked.port);
	if (verdict)
		emit_verdict(verdict, &asked, 0);
	return verdict & SAYS_DENY ? DROP : PASS;
}

/* `was_evaluated`: sk_lookup has evaluated the packet. */
static __noinline int look_at_received(struct __sk_buff *skb, bool was_evaluated)
{
	struct packet packet = {};
	u64 netns = netns_of(skb);

	if (netns == node_netns || is_from_inside(skb) || !read_packet(skb, &packet) || packet.is_control)
		return PASS;
	if (is_armed() && !is_admitted(netns) && !is_from_node(&packet.from)) {
		tell_of_packet(REASON_NOT_ADMITTED_IN, netns, &packet, false);
		return DROP;
	}
	if (packet.protocol != IPPROTO_TCP && address_kind(netns, &packet.from) == ADDRESS_OWN) {
		tell_of_packet(REASON_SOURCE_FORGED, netns, &packet, false);
		return DROP;
	}
	return was_evaluated || is_of_connection(skb, &packet) ? PASS : evaluate_received(netns, &packet);
}

/*
 * An IPv6 datagram is always looked at: its source may be forged as the receiver's own address, which sk_lookup trusts. The
 * kernel drops such packets for IPv4.
 */
static __always_inline int receive_packet(struct __sk_buff *skb)
{
	u32 protocol = plain_protocol(skb);
	bool was_evaluated = protocol && !is_raw_socket(skb);

	if (was_evaluated && protocol == IPPROTO_TCP && (!is_armed() || !opens_connection(skb)))
		return PASS;
	if (was_evaluated && protocol == IPPROTO_UDP) {
		was_evaluated = !is_for_many(skb);
		if (was_evaluated && !is_armed() && skb->protocol == bpf_htons(ETH_P_IP))
			return PASS;
	}
	return look_at_received(skb, was_evaluated);
}
