/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Evaluates a pod's policies for incoming connections: by the true source and the dialled port, before any capture. */
#pragma once

#include "evaluate.h"
#include "rules.h"

/* Gives the connection to a sink socket, so that the client gets no answer. Without a sink the client is refused. */
static __always_inline int swallow(struct bpf_sk_lookup *ctx)
{
	u32 place = (ctx->protocol == IPPROTO_UDP) + 2 * (ctx->family == AF_INET6);
	struct listener_key key = { .role = ROLE_SINK, .place = place };
	struct bpf_sock *sink = bpf_map_lookup_elem(&listeners, &key);
	long error;

	if (!sink)
		return SK_DROP;
	error = bpf_sk_assign(ctx, sink, 0);
	bpf_sk_release(sink);
	return error ? SK_DROP : SK_PASS;
}

/*
 * Whether the pod sends to itself. For a packet between the pod's own addresses the kernel reports the address's interface, not
 * lo. A datagram from outside with a forged own source is dropped on reception (packet_in.h).
 */
static __always_inline bool is_from_own(u64 netns, u32 interface, const struct address *from)
{
	return interface == LOOPBACK_INTERFACE || address_kind(netns, from) == ADDRESS_OWN;
}

/* SAYS_DENY, with or without SAYS_DROP, or 0. */
VERIFIED_ONCE u32 evaluate_arrival(struct bpf_sk_lookup *ctx, u64 netns)
{
	const volatile struct bpf_sk_lookup *packet = ctx;
	struct asked asked = { .netns = netns, .direction = INGRESS };
	struct policed pod = {};
	u32 verdict;

	if (!READ_ENTRY(&policed_pods, &netns, &pod))
		return 0;
	asked.peer.address = ADDRESS_IN(packet, remote);
	if (is_from_own(netns, packet->ingress_ifindex, &asked.peer.address))
		return 0;
	asked.peer.port = (u16)packet->remote_port;
	asked.port = packet->local_port;
	asked.protocol = asked.spoken = packet->protocol;
	identify(&asked, &pod, ADDRESS_OF_OTHERS);
	verdict = evaluate(&pod, &asked, asked.port);
	if (verdict)
		emit_verdict(verdict, &asked, 0);
	return verdict & (SAYS_DENY | SAYS_DROP);
}
