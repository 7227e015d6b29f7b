// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A connected UDP socket whose backend has gone would send into the void for ever: no event reaches it. This iterator walks the
 * UDP sockets of one network namespace and counts the sockets that are connected to a backend that has gone. It aborts those for
 * which there is no other backend (stale.bpf.c), so that the next call fails: recv with ECONNABORTED, send with EDESTADDRREQ.
 * Sockets without a translation and unconnected ones are left alone.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "stale.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set by user space: whether sockets are aborted, or only counted and marked. */
bool aborting = false;

/* Read by user space: how many sockets were stale, and how many were aborted. */
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
	/* A socket whose backend went after the round began is left for the next round, which the change of the tables triggers. */
	if (translation->connected != TRIED || bpf_sock_destroy((struct sock_common *)sock) != 0)
		return 0;
	translation->connected = ABORTED;
	destroyed += 1;
	return 0;
}
