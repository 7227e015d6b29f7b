/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who gets a connection that comes in. */
#pragma once

#include "events.h"
#include "rules.h"

/* The pod's network namespace, by its cookie: a program of this kind cannot ask. */
const volatile u64 netns = 0;

#define NO_ROLE (-1)

/* The rules, in their order. Of a virtual machine's traffic only the included ranges count. */
static __always_inline int role_of(const struct bpf_sk_lookup *ctx, const struct pod *pod, const struct address *to)
{
	if (in_set(pod->network, KIND_VIRTUAL_INTERFACE, ctx->ingress_ifindex))
		return is_included(pod, to) ? ROLE_OUTBOUND : NO_ROLE;
	if (in_set(pod->network, KIND_EXCLUDED_INTERFACE, ctx->ingress_ifindex))
		return NO_ROLE;
	return is_captured_port(pod, ctx->local_port) ? ROLE_INBOUND : NO_ROLE;
}

/* To any of the proxy's listeners that can take it; the kernel shares connections out among those of one group. */
static __always_inline int give_to(struct bpf_sk_lookup *ctx, const struct pod *pod, u32 role)
{
	struct listener_key key = { .netns = netns, .role = role };

	/* The verifier of whoever lacks CAP_PERFMON follows what a processor may guess of a loop's end. */
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
	return pod->flags & POD_PASS_WITHOUT_PROXY ? SK_PASS : SK_DROP;
}

/*
 * Whether the pod itself has sent it. What it sends to an address of eth0 is said to come in by eth0 by the kernel, though it
 * goes over the loopback; but nobody else has the source, since nobody else would hear the answer.
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
 * What connect() has let come to the proxy's ports has said along what was dialled. If that could not be kept, the proxy
 * must not guess. A loopback address as the source is left alone: what is diverted has another one, if there is any.
 */
static __always_inline int from_inside(const struct bpf_sk_lookup *ctx, const struct pod *pod, const struct address *from)
{
	const volatile struct bpf_sk_lookup *syn = ctx;
	struct redirected_flow flow = { .netns = netns };

	if (ctx->local_port != pod->outbound_port && ctx->local_port != pod->inbound_port)
		return SK_PASS;
	/* Nobody dials from port 0: connect() asks who listens. */
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
