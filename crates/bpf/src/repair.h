/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Established connections that are given back to the kernel (docs/stack.md). The stack rebuilds such a connection on its own socket,
 * in repair mode (TCP_REPAIR): connect(AF_UNSPEC), bind() and connect(), without a packet. Hooks run in the socket's cgroup, so to
 * them it looks like the pod's own call. But it is no new connection: rules decided about it when it was made, and what was
 * stored in the socket then is still right.
 */
#pragma once

#include <bpf/bpf_helpers.h>

#include "types.h"

#define SOL_SOCKET 1
#define SO_REUSEADDR 2
/* SK_FORCE_REUSE of net/sock.h, which only repair mode sets. */
#define FORCE_REUSE 2

/* Whether the socket of a call, or of a sockops event, is in repair mode. Works without CAP_PERFMON. */
static __always_inline bool is_in_repair(void *ctx)
{
	int reuse = 0;

	return bpf_getsockopt(ctx, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0 && reuse == FORCE_REUSE;
}
