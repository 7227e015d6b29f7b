/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Connected UDP sockets whose backend has gone: what stale.bpf.c and reclaim.bpf.c have in common. */
#pragma once

#include "kernel.h"
#include "serving.h"

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

/* Whether the socket is connected to a backend that its Service no longer has. */
static __always_inline bool is_stale(struct sock *sock, const struct translation *translation)
{
	struct endpoint peer = peer_of(sock);

	return translation->connected && endpoint_equal(&translation->backend, &peer) && !still_serves(translation);
}

/* Whether the socket was aborted and has not been connected since. */
static __always_inline bool is_still_aborted(struct sock *sock, const struct translation *translation)
{
	return translation->connected == ABORTED && !sock->__sk_common.skc_dport;
}
