/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* An unconnected UDP socket's last flow. It is the socket's own, so no other socket can evict it. */
#pragma once

#include "context.h"

/* Copies the last flow, under the lock since threads may share the socket. False: there is none. */
static __always_inline bool last_talk(struct bpf_sock_addr *ctx, struct talked *last)
{
	struct talk *talk = bpf_sk_storage_get(&talks, ctx->sk, NULL, 0);

	if (!talk)
		return false;
	bpf_spin_lock(&talk->lock);
	*last = talk->last;
	bpf_spin_unlock(&talk->lock);
	return true;
}

/* Stores the last flow. If there is no memory, the shared tables still hold it. */
static __always_inline void keep_talk(struct bpf_sock_addr *ctx, const struct talked *now)
{
	struct talk *talk = bpf_sk_storage_get(&talks, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!talk)
		return;
	bpf_spin_lock(&talk->lock);
	talk->last = *now;
	bpf_spin_unlock(&talk->lock);
}

/* Forgets that this peer answers for a Service. */
static __always_inline void remove_talk(struct bpf_sock_addr *ctx, const struct endpoint *peer)
{
	struct talk *talk = bpf_sk_storage_get(&talks, ctx->sk, NULL, 0);

	if (!talk)
		return;
	bpf_spin_lock(&talk->lock);
	if (endpoint_equal(&talk->last.peer, peer))
		talk->last.peer.port = 0;
	bpf_spin_unlock(&talk->lock);
}
