/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Evaluates a pod's policies for what it sends. The evaluation happens where a connection leaves the pod: for a Service's
 * backend, not the Service's address, and for what the proxy dials, not for the program's connection to the proxy.
 */
#pragma once

#include "context.h"
#include "evaluate.h"
#include "source_route.h"

/* Whether the destination is the loopback, which 0.0.0.0 and :: also reach. */
static __always_inline bool is_own_host(const struct address *to)
{
	return address_is_v4_loopback(to) || address_is_v6_loopback(to) || address_is_unspecified(to);
}

/* 0, or the negative errno with which the call is refused. Not inlined: there are several callers. */
VERIFIED_ONCE int evaluate_call(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	u64 netns = bpf_get_netns_cookie(ctx);
	struct asked asked = { .netns = netns, .direction = EGRESS };
	struct policed pod = {};
	u32 verdict;
	u8 kind;

	if (!to || !READ_ENTRY(&policed_pods, &netns, &pod))
		return 0;
	asked.peer = *to;
	asked.port = __builtin_bswap16(to->port);
	ask_by_protocol(&asked, protocol_of(ctx));
	if (has_source_route(ctx)) {
		emit_event(REASON_SOURCE_ROUTED, netns, asked.protocol, to, 0);
		return -EACCES;
	}
	if (is_own_host(&to->address))
		return 0;
	kind = address_kind(netns, &to->address);
	if (kind == ADDRESS_OWN)
		return 0;
	identify(&asked, &pod, kind);
	verdict = evaluate(&pod, &asked, asked.protocol == PROTOCOL_OTHER ? 0 : (u16)ctx->sk->src_port);
	if (verdict)
		emit_verdict(verdict, &asked, bpf_get_current_pid_tgid() >> 32);
	if (!(verdict & SAYS_DENY))
		return 0;
	return verdict & SAYS_DROP ? -EHOSTUNREACH : -ECONNREFUSED;
}

/* Denies the call, with its error set, if policies forbid it. */
static __always_inline bool is_forbidden(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	int error = evaluate_call(ctx, to);

	if (error)
		bpf_set_retval(error);
	return error != 0;
}
