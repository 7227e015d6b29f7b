/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads and writes the address in a hook's context. The verifier lets a program access only its own family's fields. */
#pragma once

#include "choice.h"

#define ALLOW 1
#define DENY 0
#define ENETUNREACH 101
#define EHOSTUNREACH 113
#define ECONNREFUSED 111
#define EACCES 13
#define EADDRINUSE 98
#define EADDRNOTAVAIL 99

/*
 * TCP or UDP. The `asm` keeps the compiler from saving the field's address for later: the verifier allows no pointer
 * arithmetic on a context other than the offset of a load.
 */
static __always_inline u8 protocol_of(const struct bpf_sock_addr *ctx)
{
	__asm__ volatile("" : "+r"(ctx));
	return ctx->protocol;
}

static __always_inline struct endpoint load4(const struct bpf_sock_addr *ctx)
{
	struct endpoint to = { .port = (u16)ctx->user_port };

	address_set_v4(&to.address, ctx->user_ip4);
	return to;
}

static __always_inline struct endpoint load6(const struct bpf_sock_addr *ctx)
{
	struct endpoint to = { .port = (u16)ctx->user_port };

	to.address.word[0] = ctx->user_ip6[0];
	to.address.word[1] = ctx->user_ip6[1];
	to.address.word[2] = ctx->user_ip6[2];
	to.address.word[3] = ctx->user_ip6[3];
	return to;
}

static __always_inline void store4(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	ctx->user_ip4 = to->address.word[3];
	ctx->user_port = to->port;
}

static __always_inline void store6(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	ctx->user_ip6[0] = to->address.word[0];
	ctx->user_ip6[1] = to->address.word[1];
	ctx->user_ip6[2] = to->address.word[2];
	ctx->user_ip6[3] = to->address.word[3];
	ctx->user_port = to->port;
}

/* Whether the socket is connected to `peer` now. connect(AF_UNSPEC) and a failed connect() run no hook. */
static __always_inline bool is_connected_to(const struct bpf_sock_addr *ctx, const struct endpoint *peer)
{
	const volatile struct bpf_sock *sock = ctx->sk;
	struct endpoint now = { .address = ADDRESS_IN(sock, dst), .port = sock->dst_port };

	return endpoint_equal(&now, peer);
}

/* Completes a getsockopt() whose value has been written. Two stores: the verifier knows no field as wide as both. */
static __always_inline void answered(volatile struct bpf_sockopt *ctx, u32 size)
{
	ctx->optlen = size;
	ctx->retval = 0;
}
