/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Source routes: an IPv6 header (RFC 8200, 4.4; RFC 8754), or an IPv4 option (LSRR, SSRR). They lead a packet first to a host
 * other than the destination that the rules are about, so a pod that has rules may not use them. This file checks the options of a
 * socket, so that the call fails at once; packet_out.h catches source routes that are sent in any other way.
 */
#pragma once

#include "context.h"
#include "kernel.h"

/* The object at `address`. Reads through NULL yield 0. */
#define LOOK_AT(type, address) ((const struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

static __always_inline bool has_source_route(struct bpf_sock_addr *ctx)
{
	struct bpf_sock_addr_kern *context;
	const struct inet_sock *inet;

	if (!may_read_kernel)
		return false;
	context = bpf_cast_to_kern_ctx(ctx);
	inet = LOOK_AT(inet_sock, context->sk);
	if (inet->inet_opt && LOOK_AT(ip_options_rcu, inet->inet_opt)->opt.srr)
		return true;
	if (!inet->pinet6 || !LOOK_AT(ipv6_pinfo, inet->pinet6)->opt)
		return false;
	return LOOK_AT(ipv6_txoptions, LOOK_AT(ipv6_pinfo, inet->pinet6)->opt)->srcrt != NULL;
}

/* Denies the call, with its error set, if the socket has a source route. */
static __always_inline bool is_source_routed(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	if (!has_source_route(ctx))
		return false;
	emit_event(REASON_SOURCE_ROUTED, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, 0);
	bpf_set_retval(-EACCES);
	return true;
}
