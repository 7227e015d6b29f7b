/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * An MPTCP connection has two kinds of sockets: subflows dial and are accepted, and the program holds the MPTCP socket above
 * them. getsockopt(SO_ORIGINAL_DST) is called on the program's socket, so each entry is copied from the subflow to that socket.
 */
#pragma once

#include "capture_maps.h"
#include "kernel.h"

static __always_inline void copy_to_mptcp(void *subflow, const struct captured *captured)
{
	struct mptcp_sock *whole;
	struct captured *its;

	if (!may_read_kernel)
		return;
	whole = bpf_skc_to_mptcp_sock(subflow);
	its = whole ? bpf_sk_storage_get(&captures, whole, NULL, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
	if (its)
		*its = *captured;
}
