/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* bind() on the node itself. */
#pragma once

#include "context.h"

/* On the node itself a Service's port is taken, as kube-proxy once held it by a socket of its own. */
static __always_inline int bound_to(struct bpf_sock *ctx, struct endpoint *at)
{
	u64 netns = bpf_get_netns_cookie(ctx);
	struct frontend_key key = { .address = at->address, .port = at->port, .protocol = ctx->protocol };

	if (netns != node_netns || !at->port)
		return ALLOW;
	if (!bpf_map_lookup_elem(&frontends, &key)) {
		address_unspecify(&key.address);
		key.scope = SCOPE_NODE;
		if (!bpf_map_lookup_elem(&frontends, &key))
			return ALLOW;
	}
	tell(REASON_BIND_REFUSED, netns, ctx->protocol, at, 0);
	bpf_set_retval(-EADDRINUSE);
	return DENY;
}
