/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of the splice maps. crates/ebpf/src/splice/layout.rs mirrors the ones that the command writes and reads.
 *
 *   SYN      at the server's side   announced {flow}                  a local listener will answer
 *   SYN-ACK  at the client's side   pairs     {flow, sequences}       the client offers, and enters `sockets`
 *   ACK      at the server's side   pairs     decision: SPLICED       the server enters, and takes the offer ...
 *   the client's first byte         pairs     decision: ORDINARY      ... unless this comes first
 */
#pragma once

#include "address.h"

/* A connection, as both ends name it. */
struct flow {
	struct endpoint client;
	struct endpoint server;
	u64 netns; /* cookie if an address is a loopback address, which exists in every namespace; else 0 */
};

/* Tells apart connections that have the same addresses one after the other: by the first sequence number of each side. */
struct pair_key {
	struct flow flow;
	u32 to_server;
	u32 to_client;
};

/* Made once for both directions, before the connection's first byte at the latest. */
enum decision {
	OFFERED,
	SPLICED,
	ORDINARY,
};

/* What an end knows of the socket at the other end. */
struct mate {
	u64 cookie; /* its key in `sockets` */
	u64 sock;   /* its address in the kernel: only read, and what is read counts only if the object has the cookie */
};

struct pair {
	struct mate client;
	struct mate server;
	u32 decision;
	u32 server_closed;
};

enum carrier {
	UNDECIDED, /* before its first byte */
	REDIRECTS, /* every byte so far has gone to the mate's queue */
	BY_TCP,    /* for good: from the first byte on, or after redirected bytes, which are read before what TCP carries */
	BROKEN,    /* the mate's key is gone although the mate lives: nothing can be sent any more */
};

/* In the storage of each socket in `sockets`. */
struct end {
	struct pair_key key;
	struct mate mate;
	u32 first; /* sequence number of the first byte: while it is the next one to send, TCP has carried no byte */
	u32 least; /* size of the smallest message since the mate's queue was last found empty */
	u8 carrier;
	u8 is_client;
	u8 watches; /* the RTT callback was switched on by us */
	u8 pad;
	u32 behind; /* surplus of messages that found others unread */
};

/* The operator's switches. */
struct switches {
	u32 paused;       /* no new pairs */
	u32 removed;      /* the programs are being removed, and no longer see sockets close */
	u32 one_of_netns; /* only sockets in the listed namespaces */
	u32 blocking;     /* also programs that block in their calls */
};

struct traffic {
	u64 messages;
	u64 bytes;
};

/* The outcome of a connection to an opted-in port, or of one direction of it; one counter each. */
enum reason {
	REASON_SPLICED,
	REASON_PEER_ELSEWHERE, /* the other end is not on this node, or not in the cgroup */
	REASON_TOO_EARLY,      /* the client's first byte came before the server's socket was there */
	REASON_PAUSED,
	REASON_MPTCP,
	REASON_ULP,
	REASON_ZEROCOPY,
	REASON_LOW_WATER,
	REASON_BLOCKING,   /* a program blocks in its calls; the kernel's sockmap fails those with EAGAIN when disturbed */
	REASON_KERNEL_SOCKET, /* a socket of the kernel's own */
	REASON_EARLY_DATA, /* TCP Fast Open: bytes were sent before the connection was established */
	REASON_FULL,       /* no room in `sockets` or `pairs` */
	REASON_NO_STORAGE,
	REASON_STALLED,    /* a direction went on by TCP: its reader has as much unread as its receive buffer may hold */
	REASON_STREAMS,    /* a direction went on by TCP: it is a stream of messages, which TCP carries in larger pieces */
	REASON_BYPASSED,   /* a direction went on by TCP: a call from before the connection sent bytes past the program */
	REASON_MISSED,     /* a direction is broken: its mate's key is gone although the mate lives */
	REASONS,
};
