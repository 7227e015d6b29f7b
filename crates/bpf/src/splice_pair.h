/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How a pair is found to be one, and how it ends. */
#pragma once

#include "splice_maps.h"

/* The client's first byte: is the server there? Whoever comes first decides, and the swap shows what the other one wrote. */
static __always_inline bool is_spliced(struct end *end)
{
	struct pair *pair = bpf_map_lookup_elem(&pairs, &end->key);

	if (!pair || __sync_val_compare_and_swap(&pair->decision, OFFERED, ORDINARY) != SPLICED)
		return false;
	end->mate = pair->server;
	return true;
}

/* A socket is none of the pair any more. Its mate is to know: a key that is missing otherwise is an error. */
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
 * The socket as it was before it entered. Only where nothing can be queued for it: nobody has been told of it yet, or
 * nobody will be, or its connection has gone.
 */
static __always_inline void leave(u64 cookie)
{
	bpf_map_delete_elem(&sockets, &cookie);
}
