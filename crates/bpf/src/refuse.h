/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Refuses a connection to a Service without endpoints at once, as a host does at a port without a listener. */
#pragma once

#include "context.h"

static __always_inline int refuse(struct bpf_sock_addr *ctx, const struct frontend *frontend,
				  const struct endpoint *to)
{
	struct service_counters *counters = bpf_map_lookup_elem(&service_counters, &frontend->service);

	if (counters)
		counters->refused += 1;
	emit_event(REASON_REFUSED, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, frontend->service);
	bpf_set_retval(-ECONNREFUSED);
	return DENY;
}
