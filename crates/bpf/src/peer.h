/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The peer's address that a program sees: the Service that it dialled, never the backend. */
#pragma once

#include "capture_maps.h"
#include "context.h"
#include "talk.h"

/* If the socket is connected to a proxy or a backend, replaces that address with the dialled one. */
static __always_inline int connected_peer(struct bpf_sock_addr *ctx, struct endpoint *from)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);
	struct captured *captured = bpf_sk_storage_get(&captures, ctx->sk, NULL, 0);

	if (captured && captured->dialled && endpoint_equal(&captured->proxy, from)) {
		*from = captured->original;
		return ALLOW;
	}
	if (translation && translation->connected && endpoint_equal(&translation->backend, from))
		*from = translation->frontend;
	return ALLOW;
}

static __always_inline bool is_diverted(struct bpf_sock_addr *ctx)
{
	struct captured *captured = bpf_sk_storage_get(&captures, ctx->sk, NULL, 0);

	return captured && captured->dialled && is_connected_to(ctx, &captured->proxy);
}

/* The address as which this peer answers; false: its own. If the LRU table has evicted the entry, the socket may hold it. */
static __always_inline bool find_reply(struct bpf_sock_addr *ctx, const struct flow_key *key, struct reply *reply)
{
	struct reply *known = bpf_map_lookup_elem(&replies, key);
	struct talked last;

	if (known) {
		*reply = *known;
		return true;
	}
	if (!last_talk(ctx, &last) || !endpoint_equal(&last.peer, &key->peer))
		return false;
	*reply = (struct reply){ .frontend = last.frontend, .redirected = last.redirected };
	return true;
}

/* Replaces the backend that a datagram came from with the Service. A connected socket receives only from its peer. */
static __always_inline int received_from(struct bpf_sock_addr *ctx, struct endpoint *from)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);
	struct flow_key key = { .socket = bpf_get_socket_cookie(ctx), .peer = *from };
	struct frontend frontend = {};
	struct reply reply;

	if (translation && translation->connected && is_connected_to(ctx, &translation->backend))
		return connected_peer(ctx, from);
	if (is_diverted(ctx))
		return connected_peer(ctx, from);
	if (!translation || !translation->unconnected || !find_reply(ctx, &key, &reply))
		return ALLOW;
	if (reply.redirected || find_frontend(&reply.frontend, protocol_of(ctx), bpf_get_netns_cookie(ctx), &frontend)) {
		*from = reply.frontend;
		return ALLOW;
	}
	/* The Service has gone. */
	bpf_map_delete_elem(&replies, &key);
	remove_talk(ctx, from);
	return ALLOW;
}
