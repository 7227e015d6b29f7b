/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of the capture maps, which say what connections of a pod go through its proxy.
 *
 *   pods      [network namespace] -> {ports, flags, rules, network}
 *                                                    |      |
 *   sets      {rules, kind, number}  ports, owners <-+      |
 *   ranges    {rules, kind, prefix}  addresses     <-+      |
 *   sets      {network, kind, number}  interfaces  <--------+
 *   ranges    {network, kind, prefix}  routes      <--------+
 *
 * Pods with the same rules share them. A change writes the new rules under a new number and then exchanges the pod's entry
 * (stable_read.h): a connection meets either the old rules or the new ones.
 */
#pragma once

#include "address.h"

enum pod_flags {
	POD_PASS_WITHOUT_PROXY = 1 << 0, /* while the proxy does not listen, connections pass; else they are refused */
	POD_ALL_RANGES = 1 << 1,	 /* includeOutboundIPRanges is * */
	POD_LOOPBACK_INCLUDED = 1 << 2,	 /* includeOutboundIPRanges names a loopback address */
	POD_INBOUND_ALL_BUT = 1 << 3,	 /* KIND_INBOUND_PORT lists the ports that are not captured; else the captured ones */
	POD_GROUPS_ALL_BUT = 1 << 4,	 /* KIND_GROUP lists the groups that are not captured; else the captured ones */
	POD_DNS = 1 << 5,
	POD_DNS_ALL = 1 << 6, /* DNS to any server is captured; else DNS to the servers in KIND_RESOLVER */
	POD_HAS_UIDS = 1 << 7,
	POD_HAS_GIDS = 1 << 8,
	POD_INERT = 1 << 9, /* nothing new is captured (not yet, or no more); redirected connections under way still arrive */
};

struct pod {
	u32 rules;
	u32 network; /* number of the tables that depend on the network namespace itself: routes and interfaces */
	u32 flags;
	u32 first_uid;
	u32 first_gid;
	u16 outbound_port; /* ports in host order */
	u16 inbound_port;
	u16 tunnel_port;
	u16 dns_port;
};

/* Kinds of `sets` entries. */
enum set_kind {
	KIND_UID,
	KIND_GID,
	KIND_GROUP,
	KIND_EXCLUDED_PORT,
	KIND_INCLUDED_PORT,
	KIND_INBOUND_PORT,
	KIND_EXCLUDED_INTERFACE, /* this kind and the next are owned by `network`, the others by `rules` */
	KIND_VIRTUAL_INTERFACE,
};

struct set_key {
	u32 owner; /* `rules` or `network` */
	u32 kind;
	u32 number;
};

/* Kinds of `ranges` entries. */
enum range_kind {
	KIND_INCLUDED_RANGE,
	KIND_EXCLUDED_RANGE,
	KIND_RESOLVER,
	KIND_ROUTE, /* owned by `network`, the others by `rules` */
};

/* Added to the kind of an IPv4 range. Without it the IPv6 range ::/0 would contain every IPv4 address in its mapped form. */
#define RANGE_OF_V4 (1 << 8)

struct range_key {
	u32 bits; /* prefix length: how many of the following bits matter */
	u32 owner;
	u32 kind;
	struct address address;
};

#define RANGE_BITS (64 + 128)

enum route_flags {
	ROUTE_LOCAL = 1 << 0,	    /* leaves by lo */
	ROUTE_EXCLUDED = 1 << 1,    /* leaves by an excluded interface */
};

/* The bits above the flags: the errno that connect(2) reports for a route that leads nowhere; 0 for all others. */
#define ROUTE_ERROR_SHIFT 16

struct route {
	u32 flags;
	struct address source; /* the source address that the kernel takes if the program has bound none */
};

/* What capture knows of a socket, in the socket's own storage. */
struct captured {
	struct endpoint original; /* what was dialled */
	struct endpoint proxy;	  /* where it was redirected to */
	struct endpoint from;	  /* this end, once the SYN was sent */
	u64 owner;		  /* cookie of the socket that has put `original` into `pending`, under {from, proxy} */
	u8 dialled;		  /* this socket has dialled; valid only while `proxy` is the socket's peer */
	u8 accepted;		  /* the proxy has accepted this socket */
	u8 bound;		  /* Sidestep has bound the source address */
	u8 fresh;		  /* the connect() that dialled is under way: a second of our programs may see the same call */
};

/* Key of `pending`: a connection on its way to the proxy. */
struct redirected_flow {
	u64 netns;
	struct endpoint from;
	struct endpoint to;
};

/* Value of `pending`: what that connection's program dialled. */
struct pending_entry {
	u64 owner; /* cookie of the socket that has dialled */
	u64 since_ns;
	struct endpoint original;
	u32 pad;
};

/* Limit of pending connections for each pod. More are refused, so that no pod can fill the table for all others. */
#define MOST_PENDING 4096

/* How much of the shared tables one pod uses. */
struct usage {
	long long pending; /* signed: when the agent repairs it, a simultaneous change may be lost */
};

enum role {
	ROLE_OUTBOUND,
	ROLE_INBOUND,
	ROLE_SINK, /* of no pod: sockets that accept everything and answer nothing; places: TCP, UDP, TCP6, UDP6 */
};

/* Listening sockets of a proxy. */
struct listener_key {
	u64 netns;
	u32 role;
	u32 place; /* below LISTENER_PLACES */
};

#define LISTENER_PLACES 64
