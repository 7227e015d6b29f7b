// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Services at the socket. connect() and sendmsg() to a Service's address go to one of its backends instead; what the
 * program asks of its peer is answered with the Service's address. No packet is ever rewritten.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "choice.h"

#define ALLOW 1
#define DENY 0
#define ECONNREFUSED 111
#define EADDRINUSE 98

/* Datagrams to a Service from one socket go to one backend until nothing was sent for so long, as with conntrack. */
#define FLOW_SECONDS 120

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* --- one socket address for both families ---------------------------------------------------------------------- */

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

/* --- connect ---------------------------------------------------------------------------------------------------- */

static __always_inline int refuse(struct bpf_sock_addr *ctx, const struct frontend *frontend,
				  const struct endpoint *to)
{
	struct service_counters *counters = bpf_map_lookup_elem(&service_counters, &frontend->service);

	if (counters)
		counters->refused += 1;
	tell(REASON_REFUSED, bpf_get_netns_cookie(ctx), ctx->protocol, to, frontend->service);
	bpf_set_retval(-ECONNREFUSED);
	return DENY;
}

/* The tuple of a connection whose source port was chosen by bind() is free again, if it is this socket's. */
static __always_inline void forget_fixed_port(u64 socket, const struct fixed_port_key *key)
{
	u64 *owner = bpf_map_lookup_elem(&fixed_ports, key);

	if (owner && *owner == socket)
		bpf_map_delete_elem(&fixed_ports, key);
}

/* What an earlier connect() of this socket left is no longer true. */
static __always_inline void forget_connect(struct translation *translation, u64 netns, u64 socket, u8 protocol)
{
	struct fixed_port_key key = {
		.netns = netns, .peer = translation->backend, .port = translation->fixed_port, .protocol = protocol,
	};
	struct backend *backend;

	if (!translation->connected)
		return;
	translation->connected = 0;
	if (key.port)
		forget_fixed_port(socket, &key);
	backend = bpf_map_lookup_elem(&backends, &translation->backend_index);
	if (backend)
		__sync_fetch_and_add(&backend->active, -1);
}

/* The source port of a TCP socket if bind() chose it; 0 if connect() will. */
static __always_inline u16 fixed_port(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == IPPROTO_TCP ? ctx->sk->src_port : 0;
}

/* Whether another socket with the same source port, chosen by bind(), has this peer. Takes the tuple if not. */
static __always_inline bool tuple_in_use(u64 socket, const struct fixed_port_key *key)
{
	u64 *owner = bpf_map_lookup_elem(&fixed_ports, key);

	if (owner && *owner != socket)
		return true;
	bpf_map_update_elem(&fixed_ports, key, &socket, BPF_ANY);
	return false;
}

/* A backend for this socket's connection. If every choice is in use, the kernel says EADDRNOTAVAIL. */
static __always_inline struct backend *backend_to_connect(struct bpf_sock_addr *ctx, const struct frontend *frontend,
							  u32 *index)
{
	u64 netns = bpf_get_netns_cookie(ctx), socket = bpf_get_socket_cookie(ctx);
	struct fixed_port_key key = { .netns = netns, .port = fixed_port(ctx), .protocol = ctx->protocol };
	struct backend *backend = NULL;

	for (int i = 0; i < TRIES; i++) {
		*index = backend_for(frontend, netns);
		backend = *index ? bpf_map_lookup_elem(&backends, index) : NULL;
		if (!backend || !key.port)
			return backend;
		key.peer = backend->endpoint;
		if (!tuple_in_use(socket, &key))
			return backend;
		count(REASON_TUPLE_IN_USE);
	}
	return backend;
}

/* Changes `to` into a backend's address if it is a Service's. Returns what the program is to return. */
static __always_inline int connect_to(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);
	struct frontend *frontend = find_frontend(to, ctx->protocol, bpf_get_netns_cookie(ctx));
	struct backend *backend;
	u32 index;

	if (translation)
		forget_connect(translation, bpf_get_netns_cookie(ctx), bpf_get_socket_cookie(ctx), ctx->protocol);
	if (!frontend)
		return ALLOW;
	if (!frontend->count)
		return refuse(ctx, frontend, to);
	backend = backend_to_connect(ctx, frontend, &index);
	if (!backend) {
		tell(REASON_BACKEND_MISSING, bpf_get_netns_cookie(ctx), ctx->protocol, to, frontend->service);
		bpf_set_retval(-ECONNREFUSED);
		return DENY;
	}
	count(REASON_TRANSLATED);
	__sync_fetch_and_add(&backend->picks, 1);
	translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (translation) {
		translation->frontend = *to;
		translation->backend = backend->endpoint;
		translation->service = frontend->service;
		translation->backend_index = index;
		translation->connected = 1;
		translation->fixed_port = fixed_port(ctx);
		__sync_fetch_and_add(&backend->active, 1);
	} else {
		count(REASON_NO_STORAGE);
	}
	*to = backend->endpoint;
	return ALLOW;
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load4(ctx);
	int verdict = connect_to(ctx, &to);

	store4(ctx, &to);
	return verdict;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load6(ctx);
	int verdict = connect_to(ctx, &to);

	store6(ctx, &to);
	return verdict;
}

/* --- datagrams with an address ----------------------------------------------------------------------------------- */

/* A datagram that is meant for a peer itself: what that peer answers is no Service's answer. */
static __always_inline void forget_reply(struct bpf_sock_addr *ctx, const struct endpoint *peer)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);
	struct flow_key key = { .socket = bpf_get_socket_cookie(ctx), .peer = *peer };

	if (translation && translation->unconnected)
		bpf_map_delete_elem(&replies, &key);
}

/* The backend that this socket's datagrams go to already, or 0. */
static __always_inline u32 flow_backend(const struct flow_key *key, u32 service)
{
	struct remembered *flow = bpf_map_lookup_elem(&flows, key);
	u64 now = bpf_ktime_get_ns();

	if (!flow || has_expired(now, flow->used_ns, FLOW_SECONDS) || !is_member(service, flow->backend))
		return 0;
	flow->used_ns = now;
	return flow->backend;
}

/* Whether the backend's answers at this socket are for another Service: then one of them could not be told apart. */
static __always_inline bool answers_for_another(u64 socket, const struct endpoint *peer, const struct endpoint *to)
{
	struct flow_key key = { .socket = socket, .peer = *peer };
	struct reply *reply = bpf_map_lookup_elem(&replies, &key);

	return reply && !endpoint_equal(&reply->frontend, to);
}

/* A backend for a new flow, if possible one that does not answer this socket for another Service. */
static __always_inline u32 backend_to_send(struct bpf_sock_addr *ctx, const struct frontend *frontend,
					   const struct endpoint *to, u64 socket)
{
	u32 index = 0;

	for (int i = 0; i < TRIES; i++) {
		struct backend *backend;

		index = backend_for(frontend, bpf_get_netns_cookie(ctx));
		backend = bpf_map_lookup_elem(&backends, &index);
		if (!index || !backend || !answers_for_another(socket, &backend->endpoint, to))
			break;
	}
	return index;
}

/* Keeps both ways of a new flow. */
static __always_inline void keep_flow(struct bpf_sock_addr *ctx, const struct flow_key *forward, u32 index,
				      struct backend *backend)
{
	struct remembered to = { .used_ns = bpf_ktime_get_ns(), .backend = index };
	struct translation *translation;

	__sync_fetch_and_add(&backend->picks, 1);
	bpf_map_update_elem(&flows, forward, &to, BPF_ANY);
	translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (translation)
		translation->unconnected = 1;
}

/* The answers of `peer` at this socket are the Service's. */
static __always_inline void keep_reply(u64 socket, const struct endpoint *peer, const struct endpoint *to)
{
	struct flow_key key = { .socket = socket, .peer = *peer };
	struct reply reply = { .frontend = *to };
	struct reply *known = bpf_map_lookup_elem(&replies, &key);

	if (known && endpoint_equal(&known->frontend, to))
		return;
	if (bpf_map_update_elem(&replies, &key, &reply, BPF_ANY))
		count(REASON_FLOW_NOT_KEPT);
}

static __always_inline int send_to(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	struct frontend *frontend = find_frontend(to, ctx->protocol, bpf_get_netns_cookie(ctx));
	struct flow_key forward = { .socket = bpf_get_socket_cookie(ctx), .peer = *to };
	struct backend *backend;
	u32 index;
	bool fresh;

	if (!frontend) {
		forget_reply(ctx, to);
		return ALLOW;
	}
	if (!frontend->count)
		return refuse(ctx, frontend, to);
	index = flow_backend(&forward, frontend->service);
	fresh = !index;
	if (fresh)
		index = backend_to_send(ctx, frontend, to, forward.socket);
	backend = bpf_map_lookup_elem(&backends, &index);
	if (!index || !backend) {
		tell(REASON_BACKEND_MISSING, bpf_get_netns_cookie(ctx), ctx->protocol, to, frontend->service);
		bpf_set_retval(-ECONNREFUSED);
		return DENY;
	}
	if (fresh) {
		count(REASON_TRANSLATED);
		keep_flow(ctx, &forward, index, backend);
	}
	keep_reply(forward.socket, &backend->endpoint, to);
	*to = backend->endpoint;
	return ALLOW;
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load4(ctx);
	int verdict = send_to(ctx, &to);

	store4(ctx, &to);
	return verdict;
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	struct endpoint to = load6(ctx);
	int verdict = send_to(ctx, &to);

	store6(ctx, &to);
	return verdict;
}

/* --- what the program hears of its peer --------------------------------------------------------------------------- */

/* Puts the Service in the place of the backend that this socket is connected to. */
static __always_inline void connected_peer(struct bpf_sock_addr *ctx, struct endpoint *from)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);

	if (translation && translation->connected && endpoint_equal(&translation->backend, from))
		*from = translation->frontend;
}

/* Puts the Service in the place of the backend that a datagram came from. */
static __always_inline void received_from(struct bpf_sock_addr *ctx, struct endpoint *from)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);
	struct flow_key key = { .socket = bpf_get_socket_cookie(ctx), .peer = *from };
	struct reply *reply = NULL;

	if (translation && translation->unconnected)
		reply = bpf_map_lookup_elem(&replies, &key);
	if (!reply)
		connected_peer(ctx, from);
	else if (find_frontend(&reply->frontend, ctx->protocol, bpf_get_netns_cookie(ctx)))
		*from = reply->frontend;
	else
		bpf_map_delete_elem(&replies, &key); /* the Service has gone */
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	struct endpoint from = load4(ctx);

	received_from(ctx, &from);
	store4(ctx, &from);
	return ALLOW;
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	struct endpoint from = load6(ctx);

	received_from(ctx, &from);
	store6(ctx, &from);
	return ALLOW;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	struct endpoint peer = load4(ctx);

	connected_peer(ctx, &peer);
	store4(ctx, &peer);
	return ALLOW;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	struct endpoint peer = load6(ctx);

	connected_peer(ctx, &peer);
	store6(ctx, &peer);
	return ALLOW;
}

/* --- bind and close ------------------------------------------------------------------------------------------------ */

/* On the node itself a Service's port is taken, as kube-proxy once held it by a socket of its own. */
static __always_inline int bound_to(struct bpf_sock *ctx, struct endpoint *at)
{
	u64 netns = bpf_get_netns_cookie(ctx);
	struct frontend_key key = { .address = at->address, .port = at->port, .protocol = ctx->protocol };
	struct address any = {};

	if (netns != node_netns || !at->port)
		return ALLOW;
	if (!bpf_map_lookup_elem(&frontends, &key)) {
		key.address = any;
		key.scope = SCOPE_NODE;
		if (!bpf_map_lookup_elem(&frontends, &key))
			return ALLOW;
	}
	tell(REASON_BIND_REFUSED, netns, ctx->protocol, at, 0);
	bpf_set_retval(-EADDRINUSE);
	return DENY;
}

SEC("cgroup/post_bind4")
int post_bind4(struct bpf_sock *ctx)
{
	struct endpoint at = { .port = __builtin_bswap16((u16)ctx->src_port) };

	address_set_v4(&at.address, ctx->src_ip4);
	return bound_to(ctx, &at);
}

SEC("cgroup/post_bind6")
int post_bind6(struct bpf_sock *ctx)
{
	struct endpoint at = { .port = __builtin_bswap16((u16)ctx->src_port) };

	at.address.word[0] = ctx->src_ip6[0];
	at.address.word[1] = ctx->src_ip6[1];
	at.address.word[2] = ctx->src_ip6[2];
	at.address.word[3] = ctx->src_ip6[3];
	return bound_to(ctx, &at);
}

SEC("cgroup/sock_release")
int sock_release(struct bpf_sock *ctx)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx, NULL, 0);

	if (translation)
		forget_connect(translation, bpf_get_netns_cookie(ctx), bpf_get_socket_cookie(ctx), ctx->protocol);
	return ALLOW;
}
