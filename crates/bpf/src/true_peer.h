/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The address that a socket is really connected to. getpeername() tells a program what it dialled, and SO_ORIGINAL_DST tells the
 * proxy; two sockets may get the same answer. The broker must know which two sockets are the ends of one connection, so it
 * asks here: by an option at a level that the kernel does not have. Only sockets with a different reported peer are answered.
 */
#pragma once

#include "capture_maps.h"
#include "context.h"

#define SOL_SIDESTEP 0x5353
#define TRUE_PEER 1

static __always_inline bool is_told_otherwise(struct bpf_sock *sock)
{
	struct captured *captured = bpf_sk_storage_get(&captures, sock, NULL, 0);
	struct translation *translation = bpf_sk_storage_get(&translations, sock, NULL, 0);

	return (captured && (captured->dialled || captured->accepted)) || (translation && translation->connected);
}

/* Answers with a `struct endpoint`. False: the socket's own getpeername() is true. */
static __always_inline bool answer_true_peer(struct bpf_sockopt *ctx)
{
	const volatile struct bpf_sock *sock = ctx->sk;
	struct endpoint *value = ctx->optval;

	if (!ctx->sk || !is_told_otherwise(ctx->sk) || (void *)(value + 1) > ctx->optval_end)
		return false;
	value->address = ADDRESS_IN(sock, dst);
	value->port = sock->dst_port;
	value->pad = 0;
	answered(ctx, sizeof(*value));
	return true;
}
