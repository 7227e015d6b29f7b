/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Takes pairs out of the sockmap once TCP carries them. Staying there costs time, and FIONREAD of a socket in a sockmap does not
 * count the bytes that TCP has brought. The reader leaves when its queue is empty and nothing more can be redirected to it; then
 * the writer leaves, when it has read its own queue. The check runs when what TCP carries is acknowledged: while TCP carries
 * nothing there is no acknowledgement.
 */
#pragma once

#include "splice_pair.h"
#include "tcp.h"

/* Whether no write of this socket will be redirected any more, and none is on its way to the mate's queue. */
static __always_inline bool is_done(const struct end *end, const struct sk_psock *own)
{
	/* One reference is the map's; every call under way holds another. */
	return !own || (end->carrier == BY_TCP && BPF_CORE_READ(own, refcnt.refs.counter) == 1);
}

static __always_inline bool has_unread(const struct sk_psock *psock)
{
	return psock && BPF_CORE_READ(psock, msg_tot_len);
}

/* The mate's sockmap state; NULL if the mate has left the map, or is gone. */
static __always_inline const struct sk_psock *psock_of_mate(const struct mate *mate)
{
	const struct sock *sock = sock_at(mate->sock);
	const struct sk_psock *psock = psock_of(sock);

	/* The cookie is read last: if it is the mate's, so is everything that was read before. */
	return sock->__sk_common.skc_cookie.counter == mate->cookie ? psock : NULL;
}

static __always_inline void stop_watching(struct bpf_sock_ops *ctx, struct end *end)
{
	if (end->watches)
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_RTT_CB_FLAG);
	end->watches = 0;
}

static __always_inline void leave_if_done(struct bpf_sock_ops *ctx, struct end *end, const struct sk_psock *own)
{
	const struct sk_psock *mate = psock_of_mate(&end->mate);

	if (mate) {
		if (is_done(end, own) && !has_unread(mate))
			leave(end->mate.cookie);
		return;
	}
	if (has_unread(own))
		return;
	leave(bpf_get_socket_cookie(ctx));
	stop_watching(ctx, end);
}

/* Bytes that TCP has carried for this socket were acknowledged. */
static __always_inline void acknowledged(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct end *end = sk ? bpf_sk_storage_get(&ends, sk, NULL, 0) : NULL;
	struct tcp_sock *tcp = end ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (!tcp)
		return;
	/* A client that wrote nothing while it was in the map has not looked up its mate. */
	if (end->mate.cookie || (end->is_client && is_spliced(end)))
		leave_if_done(ctx, end, psock_of(&tcp->inet_conn.icsk_inet.sk));
	else
		stop_watching(ctx, end);
}
