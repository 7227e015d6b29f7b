/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel's connection tracking, as programs at devices may use it (kfuncs, 6.1). */
#pragma once

#include <bpf/bpf_helpers.h>

#include "address.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

union nf_inet_addr {
	u32 all[4];
};

struct nf_conntrack_man {
	union nf_inet_addr u3;
};

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
	} dst;
};

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
};

struct ip_ct_tcp {
	u8 state;
};

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
};

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2]; /* by direction */
	unsigned long status;
	union nf_conntrack_proto proto;
};

struct nf_conn___init {
	struct nf_conn ct;
};

#pragma clang attribute pop

/* Bits of `status`. */
#define TRACKED_DNAT (1 << 5)
/* enum ip_conntrack_dir */
#define TRACKED_REPLY 1
/* Values of `state`: below this one both ends have not agreed yet ... */
#define TRACKED_ESTABLISHED 3
/* ... and from here on the connection has ended, and a SYN begins another one. */
#define TRACKED_TIME_WAIT 7

enum nf_nat_manip_type {
	MANIP_SOURCE,
	MANIP_DESTINATION,
};

struct bpf_ct_opts___ours {
	int netns_id;
	int error;
	u8 l4proto;
	u8 dir;
	u8 reserved[2];
};

#define THIS_NETNS -1

extern struct nf_conn___init *bpf_skb_ct_alloc(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, u32 tuple_size,
					       struct bpf_ct_opts___ours *options, u32 options_size) __ksym;
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, u32 tuple_size,
					 struct bpf_ct_opts___ours *options, u32 options_size) __ksym;
extern struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *fresh) __ksym;
extern void bpf_ct_release(struct nf_conn *found) __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *found, u32 milliseconds) __ksym;
extern int bpf_ct_set_nat_info(struct nf_conn___init *fresh, union nf_inet_addr *to, int port,
			       enum nf_nat_manip_type manip) __ksym;
