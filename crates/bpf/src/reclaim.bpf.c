// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A connected UDP socket whose backend has gone would send into the void for ever: nothing tells it. This iterator walks
 * the UDP sockets of one network namespace and counts those that were translated to a backend that is none any more. Where
 * no other backend could be had for them (stale.bpf.c), it aborts them, so that their next call fails (to receive with
 * ECONNABORTED, to send with EDESTADDRREQ). Sockets that nobody translated, or that are not connected, are left alone.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "stale.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* By whoever runs the iterator: whether they are aborted, or only counted and marked. */
bool aborting = false;

/* For whoever runs it: how many there were, and how many were aborted. */
u64 stale = 0;
u64 destroyed = 0;

extern int bpf_sock_destroy(struct sock_common *sock) __ksym;

SEC("iter/udp")
int reclaim_udp(struct bpf_iter__udp *ctx)
{
	struct sock *sock = (struct sock *)ctx->udp_sk;
	struct translation *translation;

	if (!sock)
		return 0;
	translation = bpf_sk_storage_get(&translations, sock, NULL, 0);
	if (!translation)
		return 0;
	if (!is_stale(sock, translation)) {
		if (translation->connected == TRIED)
			translation->connected = CONNECTED;
		return 0;
	}
	stale += 1;
	if (!aborting) {
		translation->connected = TRIED;
		return 0;
	}
	/* One whose backend has gone since the round began is for the next round, which whoever changed the tables asks for. */
	if (translation->connected != TRIED || bpf_sock_destroy((struct sock_common *)sock) != 0)
		return 0;
	translation->connected = ABORTED;
	destroyed += 1;
	return 0;
}
