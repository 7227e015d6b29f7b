/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Datagrams that are sent with an address: each may be for a different Service. */
#pragma once

#include "policy_out.h"
#include "refuse.h"
#include "serving.h"
#include "talk.h"

/* Datagrams from one socket to one Service go to the same backend until this long after the last one, as with conntrack. */
#define FLOW_SECONDS 120

/* Forgets that `peer` answers for a Service: a datagram is sent to `peer` itself, so the answer is its own. */
static __always_inline void remove_reply(struct bpf_sock_addr *ctx, const struct endpoint *peer)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);
	struct flow_key key = { .socket = bpf_get_socket_cookie(ctx), .peer = *peer };

	if (!translation || !translation->unconnected)
		return;
	bpf_map_delete_elem(&replies, &key);
	remove_talk(ctx, peer);
}

/* The backend of this socket's flow, or 0. If the flow was evicted from the shared LRU table, it is restored from the socket. */
static __noinline u32 flow_backend(struct bpf_sock_addr *ctx, const struct flow_key *key, u32 service)
{
	struct remembered *flow = bpf_map_lookup_elem(&flows, key), known = {};
	struct talked last;

	if (flow)
		known = *flow;
	else if (last_talk(ctx, &last) && endpoint_equal(&last.frontend, &key->peer))
		known = (struct remembered){ .used_ns = last.used_ns, .backend = last.backend };
	if (!known.backend || has_expired(bpf_ktime_get_ns(), known.used_ns, FLOW_SECONDS) ||
	    !is_member(service, known.backend))
		return 0;
	known.used_ns = bpf_ktime_get_ns();
	if (flow)
		flow->used_ns = known.used_ns;
	else
		bpf_map_update_elem(&flows, key, &known, BPF_ANY);
	return known.backend;
}

/* Whether this backend answers the socket for another Service already: answers for both could not be told apart. */
static __always_inline bool answers_for_another(u64 socket, const struct endpoint *peer, const struct endpoint *to)
{
	struct flow_key key = { .socket = socket, .peer = *peer };
	struct reply *reply = bpf_map_lookup_elem(&replies, &key);

	return reply && !endpoint_equal(&reply->frontend, to);
}

/* A backend for a new flow; if possible, one that does not answer this socket for another Service. */
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

/* Marks the socket as one whose received datagrams may have to be given a Service's address. */
static __always_inline void expect_replies(struct bpf_sock_addr *ctx)
{
	struct translation *translation =
		bpf_sk_storage_get(&translations, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (translation)
		translation->unconnected = 1;
}

/* Stores a new flow in both directions. */
static __always_inline void keep_flow(struct bpf_sock_addr *ctx, const struct flow_key *forward, u32 index,
				      struct backend *backend)
{
	struct remembered to = { .used_ns = bpf_ktime_get_ns(), .backend = index };

	__sync_fetch_and_add(&backend->picks, 1);
	bpf_map_update_elem(&flows, forward, &to, BPF_ANY);
	expect_replies(ctx);
}

/*
 * From now on answers of `peer` at this socket are reported as from `to`. `backend` 0: `peer` is the pod's DNS proxy. Not inlined,
 * as `flow_backend`: the caller's stack has no room.
 */
static __noinline void keep_reply(struct bpf_sock_addr *ctx, const struct endpoint *peer, const struct endpoint *to,
				  u32 backend)
{
	struct flow_key key = { .socket = bpf_get_socket_cookie(ctx), .peer = *peer };
	struct talked now = {
		.frontend = *to, .peer = *peer, .used_ns = bpf_ktime_get_ns(), .backend = backend, .redirected = !backend,
	};
	struct reply reply = { .frontend = *to, .redirected = !backend };
	struct reply *known = bpf_map_lookup_elem(&replies, &key);

	keep_talk(ctx, &now);
	if (known && endpoint_equal(&known->frontend, to))
		return;
	if (bpf_map_update_elem(&replies, &key, &reply, BPF_ANY))
		count(REASON_FLOW_NOT_KEPT);
}

/*
 * The translation of a connected socket that also names its Service in sendto(): the datagram must go to the connected backend,
 * since the kernel delivers no other backend's answer to this socket. NULL: another destination, or the backend has gone.
 */
static __always_inline struct translation *own_service(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	struct translation *translation = bpf_sk_storage_get(&translations, ctx->sk, NULL, 0);

	if (!translation || !translation->connected || !endpoint_equal(&translation->frontend, to))
		return NULL;
	return is_connected_to(ctx, &translation->backend) && still_serves(translation) ? translation : NULL;
}

VERIFIED_ONCE int send_to(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	struct flow_key forward = { .socket = bpf_get_socket_cookie(ctx) };
	struct frontend frontend = {};
	struct translation *own;
	struct backend *backend;
	struct endpoint peer;
	u32 index;
	bool is_service, fresh;

	if (!to)
		return DENY;
	is_service = find_frontend(to, protocol_of(ctx), bpf_get_netns_cookie(ctx), &frontend);
	forward.peer = *to;
	own = own_service(ctx, to);
	if (own) {
		*to = own->backend;
		return ALLOW;
	}
	if (!is_service) {
		/* Policy was evaluated for the connected peer at connect(). For an IPv4-mapped peer the kernel runs this hook per datagram. */
		if (!is_connected_to(ctx, to) && is_forbidden(ctx, to))
			return DENY;
		remove_reply(ctx, to);
		return ALLOW;
	}
	if (!frontend.count)
		return refuse(ctx, &frontend, to);
	index = flow_backend(ctx, &forward, frontend.service);
	fresh = !index;
	if (fresh)
		index = backend_to_send(ctx, &frontend, to, forward.socket);
	backend = bpf_map_lookup_elem(&backends, &index);
	if (!index || !backend) {
		emit_event(REASON_BACKEND_MISSING, bpf_get_netns_cookie(ctx), protocol_of(ctx), to, frontend.service);
		bpf_set_retval(-ECONNREFUSED);
		return DENY;
	}
	peer = backend->endpoint;
	if (is_forbidden(ctx, &peer))
		return DENY;
	if (fresh) {
		count(REASON_TRANSLATED);
		keep_flow(ctx, &forward, index, backend);
	}
	keep_reply(ctx, &backend->endpoint, to, index);
	*to = backend->endpoint;
	return ALLOW;
}
