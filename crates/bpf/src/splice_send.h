/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where the bytes of a write go. The kernel gives a reader everything that was redirected before anything that TCP has
 * brought. So a way may go from the mate's queue to TCP, once; the other direction would put late bytes before early ones.
 */
#pragma once

#include "splice_pair.h"
#include "tcp.h"

/* Whether the mate's program, which did not wait in its calls when it connected, or listened, does so now. */
static __always_inline bool is_blocking(const struct mate *mate)
{
	struct switches *switches = get_switches();
	const struct sock *sock = sock_at(mate->sock);
	bool waits = caller_of(sock) == WAITS;

	/* Read last: what was read before is the mate's if this is. */
	return waits && sock->__sk_common.skc_cookie.counter == mate->cookie && !(switches && switches->blocking);
}

/* The first byte of a way. */
static __always_inline u8 decide(struct end *end)
{
	if (end->is_client && !is_spliced(end))
		return BY_TCP;
	if (!is_blocking(&end->mate))
		return REDIRECTS;
	count(REASON_BLOCKING);
	return BY_TCP;
}

/* From now on TCP carries this way, and what has been redirected is read before. */
static __always_inline int go_by_tcp(struct end *end, u32 reason)
{
	end->way = BY_TCP;
	count(reason);
	return SK_PASS;
}

/* What the kernel needs for a message beside its bytes, which it does not count. */
#define BESIDE_BYTES 1024
/* All that waits may take so many times the receive buffer. */
#define TIMES_ROOM 4

/* So many messages of a stream, or some more, are redirected. */
#define STREAM 256

/*
 * Whether messages follow each other without waiting for answers. One that finds the queue empty counts for two that do
 * not: an answer in three pieces makes no stream.
 */
static __always_inline bool is_stream(struct end *end, u32 unread)
{
	if (unread)
		end->behind += 1;
	else
		end->behind -= end->behind < 2 ? end->behind : 2;
	return end->behind > STREAM;
}

/*
 * Whether that much more would be more than the mate may leave unread: bytes as many as its receive buffer holds, and no
 * more messages than are worth a few of them. A message that finds nothing unread is let in whatever its size.
 */
static __always_inline bool is_stalled(struct end *end, u64 unread, u64 room, u32 size)
{
	u64 messages;

	if (!unread || size < end->least)
		end->least = size;
	messages = (unread + size) / end->least; /* or fewer */
	return unread && (unread + size > room || unread + size + messages * BESIDE_BYTES > TIMES_ROOM * room);
}

/* The mate's key has gone. If the mate is being closed, its kernel answers what TCP brings with a reset, as ever. */
static __always_inline int missed(struct end *end)
{
	struct pair *pair = bpf_map_lookup_elem(&pairs, &end->key);
	bool is_closed = end->is_client ? !pair || pair->server_closed : !pair;
	struct switches *switches = get_switches();

	if (is_closed || !switches || switches->removed) {
		end->way = BY_TCP;
		return SK_PASS;
	}
	end->way = BROKEN;
	count(REASON_MISSED);
	return SK_DROP;
}

static __always_inline int redirect(struct sk_msg_md *msg, struct end *end, u32 size)
{
	const struct sock *mate = sock_at(end->mate.sock);
	u32 unread = mate->sk_backlog.rmem_alloc.counter, room = mate->sk_rcvbuf;

	/* Read last: what was read before is the mate's if this is. If not, its key has gone as well. */
	if (mate->__sk_common.skc_cookie.counter != end->mate.cookie)
		return missed(end);
	if (is_stalled(end, unread, room, size))
		return go_by_tcp(end, REASON_STALLED);
	if (is_stream(end, unread))
		return go_by_tcp(end, REASON_STREAMS);
	if (bpf_msg_redirect_hash(msg, &sockets, &end->mate.cookie, BPF_F_INGRESS) != SK_PASS)
		return missed(end);
	count_redirected(size);
	return SK_PASS;
}

static __always_inline int write_from(struct sk_msg_md *msg, struct end *end, const struct tcp_sock *tcp)
{
	/* The kernel says EPIPE. */
	if (tcp->inet_conn.icsk_inet.sk.sk_shutdown & SEND_SHUTDOWN)
		return SK_PASS;
	if (end->way == UNDECIDED)
		end->way = decide(end);
	if (end->way == BROKEN)
		return SK_DROP;
	if (end->way == BY_TCP)
		return SK_PASS;
	if (tcp->write_seq != end->first)
		return go_by_tcp(end, REASON_BYPASSED);
	return redirect(msg, end, msg->size);
}
