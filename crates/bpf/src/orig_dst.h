/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Carries the original destination from the socket that dialled to the socket that the proxy accepts. `pending` holds it under
 * the connection's tuple, which both ends know, until the proxy's socket exists and takes it.
 */
#pragma once

#include "capture_maps.h"
#include "context.h"
#include "owner.h"
#include "pending.h"
#include "mptcp.h"

#define SO_ORIGINAL_DST 80
#define SOL_IP 0
#define SOL_IPV6 41
#define SMALLEST_PAGE 4096

static __always_inline struct endpoint local_end(const volatile struct bpf_sock_ops *ops)
{
	return (struct endpoint){ .address = ADDRESS_IN(ops, local), .port = __builtin_bswap16((u16)ops->local_port) };
}

static __always_inline struct endpoint remote_end(const volatile struct bpf_sock_ops *ops)
{
	/* The port is in network order, in the upper half of the word. */
	return (struct endpoint){ .address = ADDRESS_IN(ops, remote), .port = (u16)(ops->remote_port >> 16) };
}

/* Before the SYN leaves, stores what was dialled. If storing fails, the SYN is refused on arrival (from_inside). */
static __always_inline void send_orig_dst(struct bpf_sock_ops *ops, u64 netns)
{
	struct bpf_sock *sk = ops->sk;
	struct captured *captured = sk ? bpf_sk_storage_get(&captures, sk, NULL, 0) : NULL;
	struct redirected_flow flow = { .netns = netns, .from = local_end(ops), .to = remote_end(ops) };
	struct endpoint original;
	u64 owner;

	if (!captured || !captured->dialled || !endpoint_equal(&captured->proxy, &flow.to))
		return;
	original = captured->original;
	owner = bpf_get_socket_cookie(ops);
	captured->fresh = 0;
	if (insert_pending(&flow, &original, owner)) {
		captured->from = flow.from;
		captured->owner = owner;
		/* Asks for the state callback, which reports the end also of sockets whose close no hook sees. */
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	} else {
		emit_event(REASON_ORIG_DST_NOT_STORED, netns, IPPROTO_TCP, &original, 0);
	}
	copy_to_mptcp(sk, captured);
}

/* The connection is over, perhaps without having been established: nobody will take its pending entry. */
static __always_inline void end_flow(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->args[1] == BPF_TCP_CLOSE ? ops->sk : NULL;
	struct captured *captured = sk ? bpf_sk_storage_get(&captures, sk, NULL, 0) : NULL;

	if (captured)
		remove_own_pending(bpf_get_netns_cookie(ops), captured);
}

/* A connection was established at the proxy's end: its socket takes the pending entry. */
static __always_inline void accept_orig_dst(struct bpf_sock_ops *ops, u64 netns, const struct pod *pod)
{
	struct redirected_flow flow = { .netns = netns };
	struct bpf_sock *sk = ops->sk;
	struct captured *captured;
	struct pending_entry *entry;
	u32 port = ops->local_port;

	if (port != pod->outbound_port && port != pod->inbound_port && port != pod->dns_port)
		return;
	flow.from = remote_end(ops);
	flow.to = local_end(ops);
	entry = bpf_map_lookup_elem(&pending, &flow);
	if (!entry)
		return;
	captured = sk ? bpf_sk_storage_get(&captures, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
	if (captured) {
		captured->original = entry->original;
		captured->accepted = 1;
		copy_to_mptcp(sk, captured);
		count(REASON_ACCEPTED);
	} else {
		emit_event(REASON_NO_STORAGE, netns, IPPROTO_TCP, &entry->original, 0);
	}
	remove_pending(&flow);
}

/* Whether the listener is the proxy's. Where kernel types cannot be read, any listener at the port counts as the proxy. */
static __always_inline bool is_listener_of_proxy(struct bpf_sock_ops *ops, const struct pod *pod)
{
	struct bpf_sock_ops_kern *context;

	if (!may_read_kernel)
		return true;
	context = bpf_cast_to_kern_ctx(ops);
	return is_proxys_listener(pod, BPF_CORE_READ(context, sk));
}

/* Stores a listener of the proxy. Every one is kept, since any may be the last that is left of its reuseport group. */
static __always_inline void keep_listener(struct bpf_sock_ops *ops, u64 netns, const struct pod *pod)
{
	struct listener_key key = { .netns = netns };
	u32 port = ops->local_port;

	if (port != pod->outbound_port && port != pod->inbound_port)
		return;
	if (!is_listener_of_proxy(ops, pod)) {
		count(REASON_LISTENER_OF_OTHERS);
		return;
	}
	key.role = port == pod->inbound_port ? ROLE_INBOUND : ROLE_OUTBOUND;
	/* Unrolled: without CAP_PERFMON the verifier also follows mispredicted loop ends. */
#pragma unroll
	for (u32 i = 0; i < LISTENER_PLACES; i++) {
		key.place = i;
		if (bpf_sock_hash_update(ops, &listeners, &key, BPF_NOEXIST) == 0)
			return;
	}
	count(REASON_LISTENER_NOT_KEPT);
}

/* A socket is being closed: removes its pending entry, if the connection was never established. */
static __always_inline void remove_orig_dst(struct bpf_sock *ctx)
{
	struct captured *captured = bpf_sk_storage_get(&captures, ctx, NULL, 0);

	if (captured)
		remove_own_pending(bpf_get_netns_cookie(ctx), captured);
}

/* Writes the address as getsockopt(2) returns it. False: its family differs from the level's, or the buffer is too small. */
static __always_inline bool answer_with(struct bpf_sockopt *ctx, const struct endpoint *at)
{
	void *value = ctx->optval, *end = ctx->optval_end;
	struct sockaddr_in *v4 = value;
	struct sockaddr_in6 *v6 = value;

	if (address_is_v4(&at->address) != (ctx->level == SOL_IP))
		return false;
	if (ctx->level == SOL_IP) {
		if ((void *)(v4 + 1) > end)
			return false;
		*v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = at->port, .sin_addr.s_addr = at->address.word[3] };
		answered(ctx, sizeof(*v4));
	} else {
		if ((void *)(v6 + 1) > end)
			return false;
		v6->sin6_family = AF_INET6;
		v6->sin6_port = at->port;
		v6->sin6_flowinfo = 0;
		v6->sin6_scope_id = 0;
		v6->sin6_addr.s6_addr32[0] = at->address.word[0];
		v6->sin6_addr.s6_addr32[1] = at->address.word[1];
		v6->sin6_addr.s6_addr32[2] = at->address.word[2];
		v6->sin6_addr.s6_addr32[3] = at->address.word[3];
		answered(ctx, sizeof(*v6));
	}
	return true;
}

static __always_inline struct endpoint own_address(const struct bpf_sockopt *ctx)
{
	const volatile struct bpf_sock *sock = ctx->sk;

	return (struct endpoint){ .address = ADDRESS_IN(sock, src), .port = __builtin_bswap16((u16)sock->src_port) };
}

/* Whether the caller is the pod's proxy, the only program that asks for an original destination. */
static __always_inline bool is_proxy(const struct pod *pod)
{
	u64 current = bpf_get_current_uid_gid();

	return is_proxys(pod, (struct owner){ .uid = (u32)current, .gid = current >> 32 });
}

/* Whether netfilter rules, which may exist besides, have redirected the connection: then conntrack's answer is right. */
static __always_inline bool is_redirected(const struct bpf_sockopt *ctx, const struct pod *pod, const struct endpoint *own)
{
	const volatile struct bpf_sockopt *answer = ctx;
	u16 port = __builtin_bswap16(own->port);

	return !answer->retval && (port == pod->outbound_port || port == pod->inbound_port);
}

/*
 * The original destination. For a connection that was not redirected, or that was assigned to the proxy's listener on arrival,
 * that is the socket's own address. False: unknown.
 */
static __always_inline bool find_original(struct bpf_sockopt *ctx, struct endpoint *at)
{
	struct captured *captured = ctx->sk ? bpf_sk_storage_get(&captures, ctx->sk, NULL, 0) : NULL;
	struct pod pod = {};
	u64 netns;

	if (captured && captured->accepted) {
		*at = captured->original;
		return true;
	}
	netns = bpf_get_netns_cookie(ctx);
	/* If the pod is not captured any more, a connection that the proxy took just before still has its own entry, above. */
	if (!ctx->sk || !read_pod(netns, &pod) || !is_proxy(&pod))
		return false;
	*at = own_address(ctx);
	return !is_redirected(ctx, &pod, at);
}

/* Answers SO_ORIGINAL_DST. False: the kernel's answer stands. */
static __always_inline bool answer_original(struct bpf_sockopt *ctx)
{
	struct endpoint at;

	return find_original(ctx, &at) && answer_with(ctx, &at);
}
