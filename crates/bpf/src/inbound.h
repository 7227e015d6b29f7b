/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which socket gets an incoming connection. */
#pragma once

#include "events.h"
#include "rules.h"

/* Cookie of the pod's network namespace, set at load: programs of this type cannot call bpf_get_netns_cookie(). */
const volatile u64 netns = 0;

#define NO_ROLE (-1)

/* The rules, in order. For the traffic of a virtual machine only the included ranges count. */
static __always_inline int role_of(const struct bpf_sk_lookup *ctx, const struct pod *pod, const struct address *to)
{
	if (in_set(pod->network, KIND_VIRTUAL_INTERFACE, ctx->ingress_ifindex))
		return is_included(pod, to) ? ROLE_OUTBOUND : NO_ROLE;
	if (in_set(pod->network, KIND_EXCLUDED_INTERFACE, ctx->ingress_ifindex))
		return NO_ROLE;
	return is_captured_port(pod, ctx->local_port) ? ROLE_INBOUND : NO_ROLE;
}

/* Gives the connection to the first of the proxy's listeners that can take it; the kernel balances within a reuseport group. */
VERIFIED_ONCE int give_to(struct bpf_sk_lookup *ctx, u32 pod_flags, u32 role)
{
	struct listener_key key = { .netns = netns, .role = role };

	/* Unrolled: without CAP_PERFMON the verifier also follows mispredicted loop ends. */
#pragma unroll
	for (u32 i = 0; i < LISTENER_PLACES; i++) {
		struct bpf_sock *sock;
		long error;

		key.place = i;
		sock = bpf_map_lookup_elem(&listeners, &key);
		if (!sock)
			continue;
		error = bpf_sk_assign(ctx, sock, 0);
		bpf_sk_release(sock);
		if (!error)
			return SK_PASS;
	}
	count(REASON_WITHOUT_PROXY);
	return pod_flags & POD_PASS_WITHOUT_PROXY ? SK_PASS : SK_DROP;
}

/*
 * Whether the pod itself is the sender. For a packet that the pod sends to its own eth0 address over the loopback, the kernel
 * reports eth0 as the ingress interface. A local source address is proof: no other host would receive the answers.
 */
static __always_inline bool is_from_inside(const struct bpf_sk_lookup *ctx, const struct pod *pod, const struct address *from)
{
	struct route *back;

	if (ctx->ingress_ifindex == LOOPBACK_INTERFACE)
		return true;
	back = find_range(pod->network, KIND_ROUTE, from);
	return back && back->flags & ROUTE_LOCAL;
}

/*
 * Connections of the pod to the proxy's own ports. connect() leaves an entry in `pending` for each; without the entry the proxy
 * could not learn what was dialled, so the SYN is dropped. A loopback source is let through: a redirected connection has
 * another source, if the pod has any other address.
 */
static __always_inline int from_inside(const struct bpf_sk_lookup *ctx, const struct pod *pod, const struct address *from)
{
	const volatile struct bpf_sk_lookup *syn = ctx;
	struct redirected_flow flow = { .netns = netns };

	if (ctx->local_port != pod->outbound_port && ctx->local_port != pod->inbound_port)
		return SK_PASS;
	/* Port 0 is no client: it is the listener look-up that connect() makes (redirect.h). */
	if (!syn->remote_port)
		return SK_PASS;
	flow.from.address = *from;
	flow.from.port = (u16)syn->remote_port;
	flow.to.address = ADDRESS_IN(syn, local);
	flow.to.port = __builtin_bswap16((u16)syn->local_port);
	if (is_loopback_host(from) || bpf_map_lookup_elem(&pending, &flow))
		return SK_PASS;
	count(REASON_REFUSED_INSIDE);
	return SK_DROP;
}
