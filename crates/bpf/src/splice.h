/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the splice programs keep. crates/ebpf/src/splice/layout.rs is the twin of what the command writes and reads.
 *
 *   SYN      at the server's side   announced {flow}                  a local listener will answer
 *   SYN-ACK  at the client's side   pairs     {flow, sequences}       the client offers, and enters `sockets`
 *   ACK      at the server's side   pairs     decision: SPLICED       the server enters, and takes the offer ...
 *   the client's first byte         pairs     decision: ORDINARY      ... unless this comes first
 */
#pragma once

#include "address.h"

/* A connection as both ends see it. */
struct flow {
	struct endpoint client;
	struct endpoint server;
	u64 netns; /* cookie, where an address is of the loopback: that is another one in each namespace. 0 elsewhere */
};

/* ... and which of those that ever had these addresses: the numbers of the first byte each way. */
struct pair_key {
	struct flow flow;
	u32 to_server;
	u32 to_client;
};

/* Taken once, at the connection's first byte at the latest, and the same for both ways. */
enum decision {
	OFFERED,
	SPLICED,
	ORDINARY,
};

/* A socket as the other end finds it. */
struct mate {
	u64 cookie; /* its key in `sockets` */
	u64 sock;   /* where the kernel has it: only looked at, and believed only while it has the cookie */
};

struct pair {
	struct mate client;
	struct mate server;
	u32 decision;
	u32 server_closed;
};

enum way {
	UNDECIDED, /* before its first byte */
	REDIRECTS, /* every byte so far has gone to the mate's queue */
	BY_TCP,    /* for ever: from the first byte on, or after bytes that are read before those that TCP carries */
	BROKEN,    /* the mate's key has gone while the mate lives: nothing can be sent any more */
};

/* In the storage of a socket that is in `sockets`. */
struct end {
	struct pair_key key;
	struct mate mate;
	u32 first; /* number of the first byte sent: as long as it is the next one, TCP has carried none */
	u32 least; /* size of the smallest message since the mate's queue was found empty */
	u8 way;
	u8 is_client;
	u8 watches; /* acknowledgements, which nobody else had asked for */
	u8 pad;
	u32 behind; /* how much more often than not messages have found others unread */
};

/* The operator's switches. */
struct switches {
	u32 paused;       /* nobody enters any more */
	u32 removed;      /* these programs are being taken away: closing is not seen any more */
	u32 one_of_netns; /* only sockets of the listed namespaces */
	u32 blocking;     /* programs that block in their calls, too */
};

struct traffic {
	u64 messages;
	u64 bytes;
};

/* Why a connection to an opted-in port, or a part of it, went the way it did; one counter each. */
enum reason {
	REASON_SPLICED,
	REASON_PEER_ELSEWHERE, /* the other end is no socket of this node, or of the cgroup */
	REASON_TOO_EARLY,      /* the client's first byte came before the server's socket was there */
	REASON_PAUSED,
	REASON_MPTCP,
	REASON_ULP,
	REASON_ZEROCOPY,
	REASON_LOW_WATER,
	REASON_BLOCKING,   /* a program waits in its calls; the kernel's sockmap answers those with EAGAIN when disturbed */
	REASON_KERNEL_SOCKET, /* a socket of the kernel's own */
	REASON_EARLY_DATA, /* TCP Fast Open: bytes were sent before there was a connection */
	REASON_FULL,       /* no room in `sockets` or `pairs` */
	REASON_NO_STORAGE,
	REASON_STALLED,    /* a way went on by TCP: its reader has as much unread as its receive buffer may hold */
	REASON_STREAMS,    /* a way went on by TCP: it is a stream of messages, which TCP carries in larger pieces */
	REASON_BYPASSED,   /* a way went on by TCP: a call that began before the connection sent bytes past the program */
	REASON_MISSED,     /* a way was broken: its mate's key has gone, and the mate has not */
	REASONS,
};
