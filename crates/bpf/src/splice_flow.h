/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which connection a socket belongs to, and whether the connection is opted in. */
#pragma once

#include "splice_maps.h"

#define AF_INET 2

/* Every field is read before the family is checked: the verifier allows no load whose offset depends on a condition. */
static __always_inline struct endpoint local_of(const volatile struct bpf_sock_ops *ctx)
{
	struct endpoint local = { .port = __builtin_bswap16((u16)ctx->local_port) };
	u32 family = ctx->family, v4 = ctx->local_ip4;

	local.address.word[0] = ctx->local_ip6[0];
	local.address.word[1] = ctx->local_ip6[1];
	local.address.word[2] = ctx->local_ip6[2];
	local.address.word[3] = ctx->local_ip6[3];
	if (family == AF_INET)
		address_set_v4(&local.address, v4);
	return local;
}

/* In host order. The context has it in network order, in the upper half of a word. */
static __always_inline u16 remote_port(const volatile struct bpf_sock_ops *ctx)
{
	return (u16)__builtin_bswap32(ctx->remote_port);
}

static __always_inline struct endpoint remote_of(const volatile struct bpf_sock_ops *ctx)
{
	struct endpoint remote = { .port = __builtin_bswap16(remote_port(ctx)) };
	u32 family = ctx->family, v4 = ctx->remote_ip4;

	remote.address.word[0] = ctx->remote_ip6[0];
	remote.address.word[1] = ctx->remote_ip6[1];
	remote.address.word[2] = ctx->remote_ip6[2];
	remote.address.word[3] = ctx->remote_ip6[3];
	if (family == AF_INET)
		address_set_v4(&remote.address, v4);
	return remote;
}

static __always_inline bool is_loopback(const struct address *a)
{
	bool is_one = a->word[0] == 0 && a->word[1] == 0 && a->word[2] == 0 && a->word[3] == __builtin_bswap32(1);

	return is_one || address_is_v4_loopback(a);
}

static __always_inline void set_netns(struct flow *flow, u64 netns)
{
	bool is_inside = is_loopback(&flow->client.address) || is_loopback(&flow->server.address);

	flow->netns = is_inside ? netns : 0;
}

static __always_inline void flow_of_client(struct bpf_sock_ops *ctx, struct flow *flow)
{
	flow->client = local_of(ctx);
	flow->server = remote_of(ctx);
	set_netns(flow, bpf_get_netns_cookie(ctx));
}

/* The flow as the client sees it. */
static __always_inline void flow_of_server(struct bpf_sock_ops *ctx, struct flow *flow)
{
	struct flow *alias;

	flow->client = remote_of(ctx);
	flow->server = local_of(ctx);
	set_netns(flow, bpf_get_netns_cookie(ctx));
	alias = bpf_map_lookup_elem(&aliases, flow);
	if (alias)
		*flow = *alias;
}

static __always_inline bool is_opted_in(u16 port)
{
	u32 word = port / 64;
	u64 *bits = bpf_map_lookup_elem(&ports, &word);

	return bits && *bits >> (port % 64) & 1;
}

/* Whether sockets at this server port, in this socket's namespace, are to be spliced now. */
static __always_inline bool is_wanted(struct bpf_sock_ops *ctx, u16 port)
{
	struct switches *switches = get_switches();
	u64 netns = bpf_get_netns_cookie(ctx);

	if (!switches || !is_opted_in(port))
		return false;
	if (switches->one_of_netns && !bpf_map_lookup_elem(&namespaces, &netns))
		return false;
	if (switches->paused)
		count(REASON_PAUSED);
	return !switches->paused;
}
