/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* bind() in the node's own network namespace. */
#pragma once

#include "context.h"
#include "kernel.h"
#include "repair.h"
#include "stable_read.h"

/* Whether a Service holds this port of the node at this address. kube-proxy once held such ports with sockets of its own. */
static __always_inline bool is_held(const struct endpoint *at, u8 protocol)
{
	struct frontend_key key = { .address = at->address, .port = at->port, .protocol = protocol };
	struct frontend frontend = {};

	if (READ_ENTRY(&frontends, &key, &frontend) && frontend.flags & HELD)
		return true;
	address_unspecify(&key.address);
	key.scope = SCOPE_NODE;
	return is_in_table(&frontends, &key);
}

/* Whether a Service holds the port at 0.0.0.0, which a socket bound to :: takes as well, unless it is IPV6_V6ONLY. */
static __always_inline bool is_held_by_other_family(struct bpf_sock *ctx, const struct endpoint *at)
{
	struct endpoint v4 = { .port = at->port };
	struct sock *sock;

	if (at->address.word[0] || at->address.word[1] || at->address.word[2] || at->address.word[3] || !may_read_kernel)
		return false;
	sock = bpf_cast_to_kern_ctx(ctx);
	if (BPF_CORE_READ_BITFIELD(&sock->__sk_common, skc_ipv6only))
		return false;
	address_set_v4(&v4.address, 0);
	return is_held(&v4, ctx->protocol);
}

/* Whether an established connection is given back: a Service that holds its port is younger. Unknown without CAP_PERFMON. */
static __always_inline bool is_bound_again(struct bpf_sock *ctx)
{
	struct sock *sock;

	if (!may_read_kernel)
		return false;
	sock = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(&sock->__sk_common, skc_reuse) == FORCE_REUSE;
}

static __always_inline int bound_to(struct bpf_sock *ctx, struct endpoint *at)
{
	u64 netns = bpf_get_netns_cookie(ctx);

	if (netns != node_netns || !at->port)
		return ALLOW;
	if (!is_held(at, ctx->protocol) && !is_held_by_other_family(ctx, at))
		return ALLOW;
	if (is_bound_again(ctx))
		return ALLOW;
	emit_event(REASON_BIND_REFUSED, netns, ctx->protocol, at, 0);
	bpf_set_retval(-EADDRINUSE);
	return DENY;
}
