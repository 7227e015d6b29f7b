/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets that a pod sends without an evaluation at connect() and sendmsg(): with a source route, with a source address that the
 * pod does not have, by a protocol other than TCP and UDP, or from a raw socket.
 */
#pragma once

#include "evaluate.h"
#include "packet.h"
#include "rules.h"

static __always_inline void tell_of_packet(u32 reason, u64 netns, const struct packet *packet, bool is_out)
{
	struct endpoint peer = { .address = is_out ? packet->to : packet->from, .port = packet->to_port };

	emit_event(reason, netns, packet->protocol, &peer, 0);
}

/* Whether the pod has rules of any kind. */
static __always_inline bool has_rules(u64 netns)
{
	return is_in_table(&policed_pods, &netns) || is_in_table(&pods, &netns);
}

static __always_inline bool is_forged(u64 netns, const struct packet *packet)
{
	struct address none = {};

	return !address_is_unspecified(&packet->from) && address_kind(netns, &packet->from) != ADDRESS_OWN &&
	       address_kind(netns, &none) == ADDRESS_KNOWN;
}

static __always_inline int evaluate_sent(u64 netns, const struct packet *packet)
{
	struct asked asked = {
		.netns = netns, .peer = { .address = packet->to, .port = packet->to_port },
		.port = bpf_ntohs(packet->to_port), .direction = EGRESS,
	};
	struct policed pod = {};
	u32 verdict;

	if (!READ_ENTRY(&policed_pods, &netns, &pod))
		return PASS;
	ask_by_protocol(&asked, packet->protocol);
	identify(&asked, &pod, address_kind(netns, &packet->to));
	verdict = evaluate(&pod, &asked, bpf_ntohs(packet->from_port));
	if (verdict)
		emit_verdict(verdict, &asked, 0);
	return verdict & SAYS_DENY ? DROP : PASS;
}

/* `was_evaluated`: the call that sent the packet has evaluated it. */
static __noinline int look_at_sent(struct __sk_buff *skb, bool was_evaluated)
{
	struct packet packet = {};
	u64 netns = netns_of(skb);

	if (netns == node_netns || skb->ifindex == LOOPBACK_DEVICE || !read_packet(skb, &packet))
		return PASS;
	if (packet.is_control && !packet.is_routed)
		return PASS;
	if (is_armed() && !is_admitted(netns)) {
		tell_of_packet(REASON_NOT_ADMITTED_OUT, netns, &packet, true);
		return DROP;
	}
	if (packet.is_routed && has_rules(netns)) {
		tell_of_packet(REASON_SOURCE_ROUTED, netns, &packet, true);
		return DROP;
	}
	if (is_forged(netns, &packet)) {
		tell_of_packet(REASON_SOURCE_FORGED, netns, &packet, true);
		return DROP;
	}
	return was_evaluated || is_of_connection(skb, &packet) ? PASS : evaluate_sent(netns, &packet);
}

/*
 * The source address of every datagram is checked. The options that allow a foreign one (IPV6_FREEBIND, IP_TRANSPARENT) can be
 * switched off again after bind(), and the socket keeps the address, so the options prove nothing. TCP needs no check: nobody
 * completes a handshake with a forged source.
 */
static __always_inline int send_packet(struct __sk_buff *skb)
{
	u32 protocol = plain_protocol(skb);
	bool was_evaluated = protocol && !is_raw_socket(skb);

	return was_evaluated && protocol == IPPROTO_TCP ? PASS : look_at_sent(skb, was_evaluated);
}
