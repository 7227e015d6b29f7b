// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A connected UDP socket whose backend has gone would send into the void for ever: nothing tells it. This iterator walks
 * the UDP sockets of one network namespace and aborts those that were translated to a backend that is none any more, so
 * that their next call fails (to receive with ECONNABORTED, to send with EDESTADDRREQ). Sockets that nobody translated, or
 * that are not connected, are left alone.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel.h"
#include "serving.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* How many were aborted, for whoever runs the iterator. */
u64 destroyed = 0;

extern int bpf_sock_destroy(struct sock_common *sock) __ksym;

static __always_inline struct endpoint peer_of(struct sock *sock)
{
	struct sock_common *common = &sock->__sk_common;
	struct endpoint peer = { .port = common->skc_dport };

	if (common->skc_family == AF_INET) {
		address_set_v4(&peer.address, common->skc_daddr);
		return peer;
	}
	peer.address.word[0] = common->skc_v6_daddr.in6_u.u6_addr32[0];
	peer.address.word[1] = common->skc_v6_daddr.in6_u.u6_addr32[1];
	peer.address.word[2] = common->skc_v6_daddr.in6_u.u6_addr32[2];
	peer.address.word[3] = common->skc_v6_daddr.in6_u.u6_addr32[3];
	return peer;
}

SEC("iter/udp")
int reclaim_udp(struct bpf_iter__udp *ctx)
{
	struct sock *sock = (struct sock *)ctx->udp_sk;
	struct translation *translation;
	struct endpoint peer;

	if (!sock)
		return 0;
	translation = bpf_sk_storage_get(&translations, sock, NULL, 0);
	if (!translation || !translation->connected)
		return 0;
	peer = peer_of(sock);
	if (!endpoint_equal(&translation->backend, &peer) || still_serves(translation))
		return 0;
	if (bpf_sock_destroy((struct sock_common *)sock) == 0)
		destroyed += 1;
	return 0;
}
