/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How two sockets become a pair. */
#pragma once

#include "repair.h"
#include "splice_flow.h"
#include "splice_pair.h"
#include "tcp.h"

static __always_inline u32 obstacle_of_caller(const struct sock *sock)
{
	struct switches *switches = get_switches();
	enum caller caller = caller_of(sock);

	if (caller == KERNEL)
		return REASON_KERNEL_SOCKET;
	return caller == WAITS && !(switches && switches->blocking) ? REASON_BLOCKING : REASON_SPLICED;
}

/* The reason for which a socket cannot be spliced; REASON_SPLICED if there is none. */
static __always_inline u32 obstacle(const struct tcp_sock *tcp, u32 next)
{
	const struct sock *sock = &tcp->inet_conn.icsk_inet.sk;

	if (bpf_core_field_exists(tcp->is_mptcp) && BPF_CORE_READ(tcp, is_mptcp))
		return REASON_MPTCP;
	if (tcp->inet_conn.icsk_ulp_ops)
		return REASON_ULP;
	if (sock->__sk_common.skc_flags >> bpf_core_enum_value(enum sock_flags, SOCK_ZEROCOPY) & 1)
		return REASON_ZEROCOPY;
	if (sock->sk_rcvlowat > 1)
		return REASON_LOW_WATER;
	if (tcp->write_seq != next)
		return REASON_EARLY_DATA;
	return obstacle_of_caller(sock);
}

/* Subscribes to acknowledgements, by the RTT callback. There are none while everything is redirected. */
static __always_inline void watch(struct bpf_sock_ops *ctx, struct end *end)
{
	u32 flags = ctx->bpf_sock_ops_cb_flags;

	end->watches = !(flags & BPF_SOCK_OPS_RTT_CB_FLAG);
	bpf_sock_ops_cb_flags_set(ctx, flags | BPF_SOCK_OPS_RTT_CB_FLAG);
}

/* Puts the socket into `sockets`, with its state. */
static __always_inline u32 enter(struct bpf_sock_ops *ctx, const struct end *wanted, u64 cookie)
{
	struct bpf_sock *sk = ctx->sk;
	struct end *end;

	if (!sk)
		return REASON_NO_STORAGE;
	end = bpf_sk_storage_get(&ends, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!end)
		return REASON_NO_STORAGE;
	*end = *wanted;
	if (bpf_sock_hash_update(ctx, &sockets, &cookie, BPF_NOEXIST) != 0) {
		bpf_sk_storage_delete(&ends, sk);
		return REASON_FULL;
	}
	watch(ctx, end);
	return REASON_SPLICED;
}

/* Removes the state of an earlier connection of this socket, ended by connect(AF_UNSPEC): its unread bytes are nobody's now. */
static __always_inline void end_earlier(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct end *end = sk ? bpf_sk_storage_get(&ends, sk, NULL, 0) : NULL;

	if (!end)
		return;
	part(end);
	leave(bpf_get_socket_cookie(ctx));
	bpf_sk_storage_delete(&ends, sk);
}

/* The obstacle of the listener, as a forecast: an accepted socket is mostly used as its listener is. */
static __always_inline u32 obstacle_of_listener(struct bpf_sock_ops *ctx)
{
	struct bpf_sock_ops_kern *context = bpf_cast_to_kern_ctx(ctx);

	return obstacle_of_caller(BPF_CORE_READ(context, sk, __sk_common.skc_listener));
}

/* Records that a local listener has received a SYN. */
static __always_inline void announce(struct bpf_sock_ops *ctx)
{
	struct flow flow = {};
	u32 reason;

	if (!is_wanted(ctx, (u16)ctx->local_port))
		return;
	reason = obstacle_of_listener(ctx);
	flow_of_server(ctx, &flow);
	bpf_map_update_elem(&announced, &flow, &reason, BPF_ANY);
}

/* What the listener has recorded. */
static __always_inline u32 take_announced(const struct flow *flow)
{
	u32 *found = bpf_map_lookup_elem(&announced, flow);
	u32 reason = found ? *found : REASON_PEER_ELSEWHERE;

	bpf_map_delete_elem(&announced, flow);
	return reason;
}

static __always_inline u32 offer_pair(struct bpf_sock_ops *ctx, struct end *end)
{
	struct tcp_sock *tcp = ctx->sk ? bpf_skc_to_tcp_sock(ctx->sk) : NULL;
	struct pair pair = {};
	u32 reason = take_announced(&end->key.flow);

	if (reason != REASON_SPLICED)
		return reason;
	if (!tcp)
		return REASON_MPTCP;
	reason = obstacle(tcp, end->first);
	if (reason != REASON_SPLICED)
		return reason;
	pair.client.cookie = bpf_get_socket_cookie(ctx);
	pair.client.sock = (u64)tcp;
	if (bpf_map_update_elem(&pairs, &end->key, &pair, BPF_NOEXIST) != 0)
		return REASON_FULL;
	reason = enter(ctx, end, pair.client.cookie);
	if (reason != REASON_SPLICED)
		bpf_map_delete_elem(&pairs, &end->key);
	return reason;
}

/* The client's end is established. The server's end comes later, so the client makes the offer. */
static __always_inline void offer(struct bpf_sock_ops *ctx)
{
	struct end end = { .first = ctx->snd_nxt, .is_client = 1 };
	u32 reason;

	end_earlier(ctx);
	if (!is_wanted(ctx, remote_port(ctx)) || is_in_repair(ctx))
		return;
	flow_of_client(ctx, &end.key.flow);
	end.key.to_server = ctx->snd_nxt;
	end.key.to_client = ctx->rcv_nxt;
	reason = offer_pair(ctx, &end);
	if (reason != REASON_SPLICED)
		count(reason);
}

/* The server enters. Both are spliced unless the client has already sent something. */
static __always_inline u32 take(struct bpf_sock_ops *ctx, struct end *end, struct pair *pair)
{
	struct tcp_sock *tcp = ctx->sk ? bpf_skc_to_tcp_sock(ctx->sk) : NULL;
	u64 cookie = bpf_get_socket_cookie(ctx);
	u32 reason;

	if (!tcp)
		return REASON_MPTCP;
	reason = obstacle(tcp, end->first);
	if (reason != REASON_SPLICED)
		return reason;
	end->mate = pair->client;
	reason = enter(ctx, end, cookie);
	if (reason != REASON_SPLICED)
		return reason;
	pair->server.cookie = cookie;
	pair->server.sock = (u64)tcp;
	if (__sync_val_compare_and_swap(&pair->decision, OFFERED, SPLICED) == OFFERED)
		return REASON_SPLICED;
	leave(cookie);
	return REASON_TOO_EARLY;
}

/* The server's end is established. */
static __always_inline void join(struct bpf_sock_ops *ctx)
{
	struct end end = { .first = ctx->snd_nxt };
	struct pair *pair;
	u32 reason;

	if (!is_opted_in((u16)ctx->local_port))
		return;
	flow_of_server(ctx, &end.key.flow);
	end.key.to_server = ctx->rcv_nxt;
	end.key.to_client = ctx->snd_nxt;
	/* With TCP Fast Open the server's end comes first: the client must then not wait for it. */
	bpf_map_delete_elem(&announced, &end.key.flow);
	pair = bpf_map_lookup_elem(&pairs, &end.key);
	if (!pair)
		return;
	reason = is_wanted(ctx, (u16)ctx->local_port) ? take(ctx, &end, pair) : REASON_PAUSED;
	if (reason != REASON_PAUSED)
		count(reason);
	if (reason == REASON_SPLICED)
		return;
	/* Both go on by ordinary TCP, at no cost: the client leaves the map, too. */
	__sync_val_compare_and_swap(&pair->decision, OFFERED, ORDINARY);
	leave(pair->client.cookie);
}
