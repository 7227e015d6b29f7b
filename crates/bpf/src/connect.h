/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* connect(): one backend is chosen for the whole connection, and the socket remembers the choice. */
#pragma once

#include "kernel.h"
#include "policy_out.h"
#include "refuse.h"

/* Frees the tuple of a connection whose source port was chosen by bind(), if this socket owns the tuple. */
static __always_inline void remove_fixed_port(u64 socket, const struct fixed_port_key *key)
{
	u64 *owner = bpf_map_lookup_elem(&fixed_ports, key);

	if (owner && *owner == socket)
		bpf_map_delete_elem(&fixed_ports, key);
}

/* Undoes the records of this socket's previous connect(). */
static __always_inline void end_connect(struct translation *translation, u64 netns, u64 socket, u8 protocol)
{
	struct fixed_port_key key = {
		.netns = netns, .peer = translation->backend, .port = translation->fixed_port, .protocol = protocol,
	};
	struct backend *backend;

	if (!translation->connected)
		return;
	translation->connected = NOT_CONNECTED;
	if (key.port)
		remove_fixed_port(socket, &key);
	backend = bpf_map_lookup_elem(&backends, &translation->backend_index);
	if (backend && backend->generation == translation->generation)
		__sync_fetch_and_add(&backend->active, -1);
}

/* Whether it is a socket of the kernel itself (NFS, an MPTCP subflow). No hook reports its close, so nothing may be kept for it. */
static __always_inline bool is_kernels_own(struct bpf_sock_addr *ctx)
{
	struct bpf_sock_addr_kern *context;

	if (!may_read_kernel)
		return false;
	context = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(context->sk, sk_kern_sock);
}

/* The source port of a TCP socket if bind() chose it; 0 if connect() will choose one. */
static __always_inline u16 fixed_port(struct bpf_sock_addr *ctx)
{
	return protocol_of(ctx) == IPPROTO_TCP && !is_kernels_own(ctx) ? ctx->sk->src_port : 0;
}

/* Whether another socket with the same bind() source port has this peer. If not, this socket becomes the tuple's owner. */
static __always_inline bool tuple_in_use(u64 socket, const struct fixed_port_key *key)
{
	u64 *owner = bpf_map_lookup_elem(&fixed_ports, key);

	if (owner && *owner != socket)
		return true;
	bpf_map_update_elem(&fixed_ports, key, &socket, BPF_ANY);
	return false;
}

/* A backend for this socket's connection; 0 if there is none. If all tries are in use, the kernel returns EADDRNOTAVAIL. */
VERIFIED_ONCE u32 backend_to_connect(struct bpf_sock_addr *ctx, const struct frontend *frontend)
{
	u64 netns = bpf_get_netns_cookie(ctx), socket = bpf_get_socket_cookie(ctx);
	struct fixed_port_key key = { .netns = netns, .port = fixed_port(ctx), .protocol = protocol_of(ctx) };
	u32 index = 0;

	for (int i = 0; i < TRIES; i++) {
		struct backend *backend;

		index = backend_for(frontend, netns);
		if (!index || !key.port)
			return index;
		backend = bpf_map_lookup_elem(&backends, &index);
		if (!backend)
			return 0;
		key.peer = backend->endpoint;
		if (!tuple_in_use(socket, &key))
			return index;
		count(REASON_TUPLE_IN_USE);
	}
	return index;
}

/* Stores in the socket what the connection was translated to. */
static __always_inline void remember_connect(struct bpf_sock_addr *ctx, const struct frontend *frontend,
					     const struct endpoint *to, struct backend *backend, u32 index)
{
	struct translation *translation =
		bpf_sk_storage_get(&translations, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!translation) {
		count(REASON_NO_STORAGE);
		return;
	}
	translation->frontend = *to;
	translation->backend = backend->endpoint;
	translation->service = frontend->service;
	translation->backend_index = index;
	translation->generation = backend->generation;
	translation->connected = CONNECTED;
	translation->fixed_port = fixed_port(ctx);
	__sync_fetch_and_add(&backend->active, 1);
}

/* Frees the tuple of a connection that will not be made. */
static __always_inline void give_back_tuple(struct bpf_sock_addr *ctx, const struct endpoint *peer)
{
	struct fixed_port_key key = {
		.netns = bpf_get_netns_cookie(ctx), .peer = *peer, .port = fixed_port(ctx),
		.protocol = protocol_of(ctx),
	};

	if (key.port)
		remove_fixed_port(bpf_get_socket_cookie(ctx), &key);
}

/* Ends the previous connection of a socket that is about to get another peer. */
static __always_inline void end_earlier(struct bpf_sock_addr *ctx)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);

	if (translation)
		end_connect(translation, bpf_get_netns_cookie(ctx), bpf_get_socket_cookie(ctx), protocol_of(ctx));
}

/*
 * Ends the record of an aborted socket that sends to another address than its Service's: if user space connected the socket to
 * the Service's next backend, answers from that address would be lost. Not inlined: the caller's stack has no room.
 */
static __noinline void end_aborted(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);

	if (translation && translation->connected == ABORTED && !endpoint_equal(&translation->frontend, to))
		end_connect(translation, bpf_get_netns_cookie(ctx), bpf_get_socket_cookie(ctx), protocol_of(ctx));
}

/*
 * A backend for the socket. 0: there is none, or policy forbids it; the call's error is then set. A refused datagram socket
 * keeps its present peer. A stream socket's previous tuple is freed first, so that the new choice can use it.
 */
static __always_inline u32 backend_or_error(struct bpf_sock_addr *ctx, const struct frontend *frontend,
					    const struct endpoint *to)
{
	struct backend *backend;
	struct endpoint peer;
	u32 index;

	if (protocol_of(ctx) == IPPROTO_TCP)
		end_earlier(ctx);
	index = backend_to_connect(ctx, frontend);
	backend = bpf_map_lookup_elem(&backends, &index);
	if (!backend || !index) {
		emit_event(REASON_BACKEND_MISSING, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, frontend->service);
		bpf_set_retval(-ECONNREFUSED);
		return 0;
	}
	peer = backend->endpoint;
	if (!is_forbidden(ctx, &peer))
		return index;
	give_back_tuple(ctx, &peer);
	return 0;
}

/* Changes `to` into a backend's address if `to` is a Service's (ClusterIP). Returns the program's verdict, ALLOW or DENY. */
VERIFIED_ONCE int connect_to(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	struct frontend frontend = {};
	struct backend *backend;
	bool is_service;
	u32 index;

	if (!to)
		return DENY;
	is_service = find_frontend(to, protocol_of(ctx), bpf_get_netns_cookie(ctx), &frontend);
	/* Refusals come before end_earlier(): a refused datagram socket keeps its present peer. */
	if (is_service && !frontend.count)
		return refuse(ctx, &frontend, to);
	if (!is_service && is_forbidden(ctx, to))
		return DENY;
	if (!is_service) {
		end_earlier(ctx);
		return ALLOW;
	}
	index = backend_or_error(ctx, &frontend, to);
	/* Looked up again: without CAP_PERFMON the verifier would use a pointer that a function returns where it is NULL, too. */
	backend = index ? bpf_map_lookup_elem(&backends, &index) : NULL;
	if (!backend)
		return DENY;
	end_earlier(ctx);
	count(REASON_TRANSLATED);
	__sync_fetch_and_add(&backend->picks, 1);
	if (!is_kernels_own(ctx))
		remember_connect(ctx, &frontend, to, backend, index);
	*to = backend->endpoint;
	return ALLOW;
}
