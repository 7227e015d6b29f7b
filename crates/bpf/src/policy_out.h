/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a pod's policies say of what it sends. They are asked where the connection leaves the pod: of a Service's backend,
 * not of the Service's address, and of what the proxy dials, not of the program's way to the proxy.
 */
#pragma once

#include "context.h"
#include "judge.h"

#define EHOSTUNREACH 113

/* Whoever dials 0.0.0.0 or :: reaches the loopback. */
static __always_inline bool stays_in_pod(u64 netns, const struct address *to)
{
	struct own_key own = { .netns = netns, .address = *to };

	if (address_is_v4_loopback(to) || address_is_v6_loopback(to) || address_is_unspecified(to))
		return true;
	return is_in_table(&own_addresses, &own);
}

/* 0, or the error with which the call is refused. A function of its own: it is wanted in several places. */
static __noinline int judge_call(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	u64 netns = bpf_get_netns_cookie(ctx);
	struct asked asked = {
		.netns = netns, .peer = *to, .port = __builtin_bswap16(to->port), .protocol = protocol_of(ctx),
		.direction = EGRESS,
	};
	struct identity peer;
	struct policed pod;
	u32 verdict;

	if (!READ_ENTRY(&policed_pods, &netns, &pod) || stays_in_pod(netns, &to->address))
		return 0;
	asked.identity = identity_of(pod.generation, &to->address, &peer) ? peer.number : IDENTITY_UNKNOWN;
	verdict = judged(&pod, &asked, (u16)ctx->sk->src_port);
	if (verdict)
		tell_verdict(verdict, &asked, bpf_get_current_pid_tgid() >> 32);
	if (!(verdict & SAYS_DENY))
		return 0;
	return verdict & SAYS_DROP ? -EHOSTUNREACH : -ECONNREFUSED;
}

/* Whether the call is to be denied, with its error set. */
static __always_inline bool is_forbidden(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	int error = judge_call(ctx, to);

	if (error)
		bpf_set_retval(error);
	return error != 0;
}
