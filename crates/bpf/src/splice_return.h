/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A way that goes by TCP for good need not go through the kernel's sockmap any longer: that costs, and its FIONREAD does not
 * count what TCP has brought. So the reader leaves the map when nothing waits in its queue and nothing can come there; and
 * then the writer, too, when it has read what waits in its own. Acknowledgements of what TCP carries are the occasion: as
 * long as TCP carries nothing there are none.
 */
#pragma once

#include "splice_pair.h"
#include "tcp.h"

/* Whether no write of this socket is redirected any more, nor on its way to the mate's queue. */
static __always_inline bool is_done(const struct end *end, const struct sk_psock *own)
{
	/* One for the map, and one for every call that is under way. */
	return !own || (end->way == BY_TCP && BPF_CORE_READ(own, refcnt.refs.counter) == 1);
}

static __always_inline bool has_unread(const struct sk_psock *psock)
{
	return psock && BPF_CORE_READ(psock, msg_tot_len);
}

/* What keeps the mate in the map; NULL if it has left, or has gone. */
static __always_inline const struct sk_psock *psock_of_mate(const struct mate *mate)
{
	const struct sock *sock = sock_at(mate->sock);
	const struct sk_psock *psock = psock_of(sock);

	/* Read last: what was read before is the mate's if this is. */
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

/* Something that TCP has carried for this socket was acknowledged. */
static __always_inline void acknowledged(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct end *end = sk ? bpf_sk_storage_get(&ends, sk, NULL, 0) : NULL;
	struct tcp_sock *tcp = end ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (!tcp)
		return;
	/* A client that has written nothing while it was in the map has not looked for its mate. */
	if (end->mate.cookie || (end->is_client && is_spliced(end)))
		leave_if_done(ctx, end, psock_of(&tcp->inet_conn.icsk_inet.sk));
	else
		stop_watching(ctx, end);
}
