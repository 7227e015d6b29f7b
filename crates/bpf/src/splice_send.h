/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Decides where the bytes of a write go. The kernel gives a reader all redirected bytes before any that TCP has brought. So a
 * direction may change from the mate's queue to TCP, once; the opposite change would put late bytes before early ones.
 */
#pragma once

#include "splice_pair.h"
#include "tcp.h"

/* Whether the mate's program blocks in its calls now. When the connection was made, or at the listener, it did not. */
static __always_inline bool is_blocking(const struct mate *mate)
{
	struct switches *switches = get_switches();
	const struct sock *sock = sock_at(mate->sock);
	bool waits = caller_of(sock) == WAITS;

	/* The cookie is read last: if it is the mate's, so is everything that was read before. */
	return waits && sock->__sk_common.skc_cookie.counter == mate->cookie && !(switches && switches->blocking);
}

/* Decides at the first byte of a direction. */
static __always_inline u8 decide(struct end *end)
{
	if (end->is_client && !is_spliced(end))
		return BY_TCP;
	if (!is_blocking(&end->mate))
		return REDIRECTS;
	count(REASON_BLOCKING);
	return BY_TCP;
}

/* From now on TCP carries this direction. The reader gets the redirected bytes first. */
static __always_inline int go_by_tcp(struct end *end, u32 reason)
{
	end->carrier = BY_TCP;
	count(reason);
	return SK_PASS;
}

/* The kernel's memory for a message besides its bytes, which the kernel does not count. */
#define BESIDE_BYTES 1024
/* Limit of the memory for all unread messages, in multiples of the receive buffer. */
#define TIMES_ROOM 4

/* About how many messages of a stream are redirected before TCP carries it. */
#define STREAM 256

/*
 * Whether messages follow each other without waiting for answers. A message that finds the queue empty weighs as much as two
 * that do not, so that an answer in three pieces is no stream.
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
 * Whether `size` more bytes exceed what the mate may leave unread: as many bytes as its receive buffer holds, and as many messages
 * as take TIMES_ROOM times that memory. A message that finds nothing unread is redirected whatever its size.
 */
static __always_inline bool is_stalled(struct end *end, u64 unread, u64 room, u32 size)
{
	u64 messages;

	if (!unread || size < end->least)
		end->least = size;
	messages = (unread + size) / end->least; /* an upper bound */
	return unread && (unread + size > room || unread + size + messages * BESIDE_BYTES > TIMES_ROOM * room);
}

/* The mate's key is gone. If the mate is being closed, TCP carries on, and the mate's kernel answers with RST as usual. */
static __always_inline int missed(struct end *end)
{
	struct pair *pair = bpf_map_lookup_elem(&pairs, &end->key);
	bool is_closed = end->is_client ? !pair || pair->server_closed : !pair;
	struct switches *switches = get_switches();

	if (is_closed || !switches || switches->removed) {
		end->carrier = BY_TCP;
		return SK_PASS;
	}
	end->carrier = BROKEN;
	count(REASON_MISSED);
	return SK_DROP;
}

static __always_inline int redirect(struct sk_msg_md *msg, struct end *end, u32 size)
{
	const struct sock *mate = sock_at(end->mate.sock);
	u32 unread = mate->sk_backlog.rmem_alloc.counter, room = mate->sk_rcvbuf;

	/* The cookie is read last: if it is the mate's, so is all that was read before. If not, the mate's key is gone, too. */
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
	/* The kernel returns EPIPE. */
	if (tcp->inet_conn.icsk_inet.sk.sk_shutdown & SEND_SHUTDOWN)
		return SK_PASS;
	if (end->carrier == UNDECIDED)
		end->carrier = decide(end);
	if (end->carrier == BROKEN)
		return SK_DROP;
	if (end->carrier == BY_TCP)
		return SK_PASS;
	if (tcp->write_seq != end->first)
		return go_by_tcp(end, REASON_BYPASSED);
	return redirect(msg, end, msg->size);
}
