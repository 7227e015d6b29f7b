/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What an unconnected UDP socket has talked with last, which nobody else can have it forget. */
#pragma once

#include "context.h"

/* False: with nobody. Threads may share the socket, so it is copied whole. */
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

/* Without memory for it there are still the shared tables. */
static __always_inline void keep_talk(struct bpf_sock_addr *ctx, const struct talked *now)
{
	struct talk *talk = bpf_sk_storage_get(&talks, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!talk)
		return;
	bpf_spin_lock(&talk->lock);
	talk->last = *now;
	bpf_spin_unlock(&talk->lock);
}

/* What this peer answers is its own. */
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
