/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Source routes: a header of IPv6 (RFC 8200, 4.4; RFC 8754), an option of IPv4 (LSRR, SSRR). They lead a packet to another
 * host first than the address says that rules have been asked about, so a pod that has rules may not use them. Here for options
 * of a socket, so that the call has an error at once; packet_out.h finds whatever is sent otherwise.
 */
#pragma once

#include "context.h"
#include "kernel.h"

/* Reading what a pointer of NULL leads to gives 0. */
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

/* Whether the call is to be denied, with its error set. */
static __always_inline bool is_source_routed(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	if (!has_source_route(ctx))
		return false;
	emit_event(REASON_SOURCE_ROUTED, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, 0);
	bpf_set_retval(-EACCES);
	return true;
}
