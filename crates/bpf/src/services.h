/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of the maps that the agent writes and the programs read. crates/ebpf/src/layout.rs mirrors this file; a test
 * compares both with the object's BTF.
 *
 *   frontends {address, port, protocol, scope} -> {service, first, count, affinity, flags}
 *                                                               |      |
 *   slots     [first .. first + count]       -> {backend, other, own} <-+
 *                                                    |
 *   backends  [backend]                      -> {endpoint, active}
 *
 * A change writes new slots first and then exchanges the frontend's entry (stable_read.h): a program sees either the old list or
 * the new one.
 */
#pragma once

#include "address.h"
#include "select.h"

enum scope {
	SCOPE_ADDRESS,       /* sockets that dial this address */
	SCOPE_NODE,          /* ... every address of this node; the key's address is 0.0.0.0 or :: */
	SCOPE_EXTERNAL,      /* packets to this address */
	SCOPE_EXTERNAL_NODE, /* ... to every address of this node */
	SCOPE_POD,           /* packets that pods send to this address, where others have another traffic policy */
	SCOPE_POD_NODE,
};

struct frontend_key {
	struct address address;
	u16 port; /* network order */
	u8 protocol;
	u8 scope;
};

enum frontend_flags {
	LEAST_CONNECTIONS = 1 << 0, /* of two random backends, take the one with fewer open connections */
	HELD = 1 << 1,              /* no program of the node may bind() to it */
	MASQUERADE = 1 << 2,        /* packets get an address of the node as their source */
	RESTRICTED = 1 << 3,        /* packets must come from one of the service's source ranges */
	ELSEWHERE = 1 << 4,         /* only other nodes have endpoints: packets are dropped, not refused */
};

/* Values of `node_addresses`. */
enum node_address {
	WITH_NODE_PORTS = 1,
	WITHOUT_NODE_PORTS = 2, /* the node's own all the same */
};

/* The mark of a packet that is to be refused: the whole of it (0x51de5e9), which nobody else uses. */
#define REFUSED_MARK 85845481

struct frontend {
	u32 service; /* index into service_counters; the same for all frontends with the same backends of one Service */
	u32 first;
	u32 count; /* 0: no endpoint; connections are refused, packets unless ELSEWHERE */
	u32 affinity_seconds; /* 0: no affinity */
	u32 flags;
	u32 sibling; /* the `service` of the same port's other traffic policy; 0: none */
};

struct backend {
	struct endpoint endpoint;
	u32 generation; /* changes when the backend's number is reused */
	u64 active; /* connected sockets; written by the programs */
	u64 picks;
};

/* Key of `members`, which says that a backend serves a Service. Kept only for Services that remember choices. */
struct member_key {
	u32 service;
	u32 backend;
};

/* Key of `source_ranges`: a network whose packets may use the restricted frontends of a Service's port. */
struct source_key {
	u32 length; /* of the prefix, in bits: those of `service`, and then those of `address` */
	u32 service;
	struct address address;
};

/* Key of `pod_networks`. */
struct network_key {
	u32 length;
	struct address address;
};

struct affinity_key {
	u64 client; /* network namespace cookie: identifies a pod for its lifetime */
	u32 service;
	u32 pad;
};

struct remembered {
	u64 used_ns;
	u32 backend;
	u32 pad;
};

/* Values of `translation.connected`. */
enum connected {
	NOT_CONNECTED,
	CONNECTED, /* the backend is the peer, and counts this socket as active */
	ABORTED,   /* the socket was aborted, since its Service had no backend */
	TRIED,     /* the backend had gone when a round began; user space has since had its chance to connect the socket elsewhere */
};

/* In a socket's own storage: what its connect() was translated to. Valid only while `backend` is the socket's peer. */
struct translation {
	struct endpoint frontend;
	struct endpoint backend;
	u32 service;
	u32 backend_index;
	u8 connected;   /* enum connected */
	u8 unconnected; /* datagrams to Services have been sent with an address */
	u16 fixed_port; /* the source port that bind() chose, in fixed_ports; 0: none */
	u32 generation; /* of `backend_index` */
};

/* An unconnected UDP socket and one of its peers. */
struct flow_key {
	u64 socket; /* cookie */
	struct endpoint peer;
	u32 pad;
};

struct reply {
	struct endpoint frontend;
	u32 redirected; /* the peer is the pod's DNS proxy, not a backend */
};

/* The last datagram's destination, and where it was sent instead. */
struct talked {
	struct endpoint frontend;
	struct endpoint peer; /* port 0: the peer answers as itself */
	u64 used_ns;
	u32 backend;
	u32 redirected; /* as in `reply` */
};

/* A connection whose source port was chosen by bind(): no two of them may have the same peer. */
struct fixed_port_key {
	u64 netns;
	struct endpoint peer;
	u16 port; /* host order */
	u8 protocol;
	u8 pad;
};

struct service_counters {
	u64 picks;
	u64 affinity_hits;
	u64 refused;
};

/* What became of a call or connection; one counter each. */
enum reason {
	REASON_TRANSLATED,
	REASON_REFUSED,         /* no endpoint */
	REASON_BACKEND_MISSING, /* a slot without a backend: the agent's maps disagree */
	REASON_NO_STORAGE,      /* the socket could not remember its Service */
	REASON_FLOW_NOT_KEPT,   /* a datagram's reply will not be translated */
	REASON_TUPLE_IN_USE,    /* a fixed source port is connected to the backend already; another was taken */
	REASON_BIND_REFUSED,    /* bind() to a port of a Service on this node */
	REASON_CAPTURED_OUTBOUND, /* redirected to the proxy's outbound port */
	REASON_CAPTURED_INBOUND,  /* redirected to the proxy's inbound port */
	REASON_CAPTURED_DNS,
	REASON_NOT_CAPTURED,    /* a captured pod's rules let the connection pass */
	REASON_NO_ROUTE,        /* refused: the pod has no route there */
	REASON_SOURCE_NOT_KEPT, /* the proxy sees a loopback address as the source */
	REASON_ORIG_DST_NOT_STORED,    /* refused: what was dialled could not be stored for the proxy */
	REASON_ACCEPTED,        /* the proxy has been told what was dialled */
	REASON_LISTENER_NOT_KEPT, /* the proxy has more listeners than are remembered */
	REASON_REFUSED_INSIDE,  /* refused: at the proxy's port, without a pending entry */
	REASON_WITHOUT_PROXY,   /* incoming, and nothing listens at the proxy's port */
	REASON_POLICY_DENIED_OUT, /* a pod's policies forbid what it sends */
	REASON_POLICY_DENIED_IN,  /* a pod's policies forbid what it is sent */
	REASON_POLICY_WOULD_DENY_OUT, /* allowed, but policies in dry run would deny it */
	REASON_POLICY_WOULD_DENY_IN,
	REASON_BYPASSED_OUTBOUND, /* not captured: the Service needs no proxy */
	REASON_BYPASSED_INBOUND,
	REASON_BYPASS_REFUSED,    /* captured although the Service needs no proxy: the pod or its peer requires one */
	REASON_NOT_WATCHED,       /* not counted: the table of relations is full */
	REASON_SOURCE_ROUTED,     /* refused: a source route leads elsewhere than to the address that rules evaluate */
	REASON_SOURCE_FORGED,     /* dropped: the source address is not the sender's, or is the receiver's own */
	REASON_NOT_ADMITTED_OUT,  /* refused: the node is armed, and the agent has not admitted the sender's namespace */
	REASON_NOT_ADMITTED_IN,   /* dropped: the same for the receiver's namespace */
	REASON_TOO_MANY_PENDING,  /* refused: the pod has too many connections under way to its proxy */
	REASON_CONVERSATION_NOT_KEPT, /* the answers to a datagram will be denied: the pod has no table of conversations */
	REASON_LISTENER_OF_OTHERS, /* a listener at the proxy's port that is not the proxy: it gets no captured connections */
	REASON_PACKET_TRANSLATED,   /* packets of a new connection to a Service go to a backend */
	REASON_PACKET_WITHOUT_ENDPOINT, /* dropped: no endpoint here, but others on other nodes */
	REASON_PACKET_NOT_IN_RANGES,  /* dropped: its source is not in the Service's source ranges */
	REASON_PACKET_NOT_TRACKED,    /* dropped: conntrack cannot take the connection, or no source address leads to the backend */
	REASON_PACKET_REFUSED,      /* answered by ICMP's "port unreachable": no endpoint anywhere */
	REASONS,
};

/* Room for the counters of later versions, so that the pinned map keeps its size. */
#define MOST_REASONS 64

/* A rare event, for the agent's log. */
struct event {
	u64 time_ns;
	u64 netns;
	struct endpoint frontend;
	u32 service;
	u32 reason;
	u32 pid;
	u8 protocol;
	u8 direction;
	u16 pad;
	u32 identity; /* of the peer, where policies were evaluated */
};
