/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of capture's maps: which connections of a pod go through its proxy.
 *
 *   pods      [network namespace] -> {ports, flags, rules, network}
 *                                                    |      |
 *   sets      {rules, kind, number}  ports, owners <-+      |
 *   ranges    {rules, kind, prefix}  addresses     <-+      |
 *   sets      {network, kind, number}  interfaces  <--------+
 *   ranges    {network, kind, prefix}  routes      <--------+
 *
 * Pods with the same rules share them. A change writes the new rules under another number and then replaces the pod, which
 * the kernel does atomically: a connection meets the old rules or the new ones.
 */
#pragma once

#include "address.h"

enum pod_flags {
	POD_PASS_WITHOUT_PROXY = 1 << 0, /* while the proxy does not listen: else refused */
	POD_ALL_RANGES = 1 << 1,	 /* includeOutboundIPRanges is * */
	POD_LOOPBACK_INCLUDED = 1 << 2,	 /* includeOutboundIPRanges names a loopback address */
	POD_INBOUND_ALL_BUT = 1 << 3,	 /* KIND_INBOUND_PORT lists the ports that are not captured; else those that are */
	POD_GROUPS_ALL_BUT = 1 << 4,	 /* KIND_GROUP lists the groups that are not captured; else those that are */
	POD_DNS = 1 << 5,
	POD_DNS_ALL = 1 << 6, /* whatever the server; else those of KIND_RESOLVER */
	POD_HAS_UIDS = 1 << 7,
	POD_HAS_GIDS = 1 << 8,
	POD_INERT = 1 << 9, /* nothing new is captured: not yet, or no more. What is under way arrives */
};

struct pod {
	u32 rules;
	u32 network; /* what depends on the namespace itself: routes and interfaces */
	u32 flags;
	u32 first_uid;
	u32 first_gid;
	u16 outbound_port; /* ports in host order */
	u16 inbound_port;
	u16 tunnel_port;
	u16 dns_port;
};

/* Of sets. */
enum set_kind {
	KIND_UID,
	KIND_GID,
	KIND_GROUP,
	KIND_EXCLUDED_PORT,
	KIND_INCLUDED_PORT,
	KIND_INBOUND_PORT,
	KIND_EXCLUDED_INTERFACE, /* these two by `network` */
	KIND_VIRTUAL_INTERFACE,
};

struct set_key {
	u32 owner; /* `rules` or `network` */
	u32 kind;
	u32 number;
};

/* Of ranges. */
enum range_kind {
	KIND_INCLUDED_RANGE,
	KIND_EXCLUDED_RANGE,
	KIND_RESOLVER,
	KIND_ROUTE, /* by `network` */
};

/* Added to the kind: ::/0 is a range of IPv6, though every IPv4 address has a form that is in it. */
#define RANGE_OF_V4 (1 << 8)

struct range_key {
	u32 bits; /* that matter of what follows */
	u32 owner;
	u32 kind;
	struct address address;
};

#define RANGE_BITS (64 + 128)

enum route_flags {
	ROUTE_LOCAL = 1 << 0,	    /* leaves by lo */
	ROUTE_EXCLUDED = 1 << 1,    /* leaves by an excluded interface */
};

/* Above the flags: what connect(2) says of a route that leads nowhere; 0 for all others. */
#define ROUTE_ERROR_SHIFT 16

struct route {
	u32 flags;
	struct address source; /* that the kernel takes if the program has chosen none */
};

/* In a socket's own storage. */
struct captured {
	struct endpoint original; /* what was dialled */
	struct endpoint proxy;	  /* where it went instead */
	struct endpoint from;	  /* this end, since the SYN */
	u64 owner;		  /* cookie of the socket that has put `original` into `pending`, under {from, proxy} */
	u8 dialled;		  /* this end has dialled; believed only while `proxy` is the socket's peer */
	u8 accepted;		  /* this end is the proxy's */
	u8 bound;		  /* the source address was given by us */
	u8 fresh;		  /* the call that has dialled is still under way: another program of ours may meet it */
};

/* A connection that is on its way to the proxy: from where to where. */
struct redirected_flow {
	u64 netns;
	struct endpoint from;
	struct endpoint to;
};

/* What was dialled by such a connection. */
struct pending_entry {
	u64 owner; /* cookie of the socket that has dialled */
	u64 since_ns;
	struct endpoint original;
	u32 pad;
};

/* Of one pod: more are refused, so that no pod takes the room of the others. */
#define MOST_PENDING 4096

/* What of the shared tables one pod uses. */
struct usage {
	long long pending; /* signed: a repair by the agent may lose a change that is made at the same time */
};

enum role {
	ROLE_OUTBOUND,
	ROLE_INBOUND,
	ROLE_SINK, /* of no pod: takes everything and answers nothing; places are TCP, UDP, and the same of IPv6 */
};

/* Sockets of the proxy that listen. */
struct listener_key {
	u64 netns;
	u32 role;
	u32 place; /* below LISTENER_PLACES */
};

#define LISTENER_PLACES 64
