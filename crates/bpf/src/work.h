/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a call goes: to the proxy if its pod's rules say so, else to a Service's backend, else where it wants. */
#pragma once

#include "connect.h"
#include "datagram.h"
#include "diversion.h"

static __always_inline int connect_out(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	enum diversion diversion = NOT_DIVERTED;
	struct pod pod;

	if (captured_pod(bpf_get_netns_cookie(ctx), &pod))
		diversion = divert_connect(ctx, &pod, to);
	if (diversion == NOT_DIVERTED)
		return connect_to(ctx, to);
	forget_earlier(ctx);
	return diversion == DIVERTED ? ALLOW : DENY;
}

/* `from` becomes the datagram's source, if it is to have another one than the kernel takes. */
static __always_inline int send_out(struct bpf_sock_addr *ctx, struct endpoint *to, struct address *from)
{
	enum diversion diversion = NOT_DIVERTED;
	struct pod pod;

	if (captured_pod(bpf_get_netns_cookie(ctx), &pod))
		diversion = divert_datagram(ctx, &pod, to, from);
	if (diversion == NOT_DIVERTED)
		return send_to(ctx, to);
	return diversion == DIVERTED ? ALLOW : DENY;
}
