/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How a pair is confirmed, and how it ends. */
#pragma once

#include "splice_maps.h"

/* At the client's first byte: has the server entered? The first to swap decides; the loser's swap returns the decision. */
static __always_inline bool is_spliced(struct end *end)
{
	struct pair *pair = bpf_map_lookup_elem(&pairs, &end->key);

	if (!pair || __sync_val_compare_and_swap(&pair->decision, OFFERED, ORDINARY) != SPLICED)
		return false;
	end->mate = pair->server;
	return true;
}

/* Ends the pair for this socket. The mate must be told, since a key that is missing without reason is an error. */
static __always_inline void part(const struct end *end)
{
	struct pair *pair = bpf_map_lookup_elem(&pairs, &end->key);

	if (!pair)
		return;
	if (end->is_client)
		bpf_map_delete_elem(&pairs, &end->key);
	else
		pair->server_closed = 1;
}

/*
 * Takes the socket out of `sockets`. Only allowed where nothing can be queued for it: its mate has not been told of it yet, or
 * will not be, or its connection is over.
 */
static __always_inline void leave(u64 cookie)
{
	bpf_map_delete_elem(&sockets, &cookie);
}
