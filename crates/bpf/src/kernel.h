/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The few kernel types that are read. The loader relocates each field to its offset in the running kernel (CO-RE). */
#pragma once

#include "address.h"

/* The loader ignores the suffix of a type's name from `___` on. */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr___kernel {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct net {
	u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	u32 skc_daddr;
	u16 skc_num;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	u16 skc_dport;
	u16 skc_family;
	unsigned char skc_reuse : 4;
	unsigned char skc_ipv6only : 1;
	struct in6_addr___kernel skc_v6_daddr;
};

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

struct cred {
	kuid_t fsuid;
	kgid_t fsgid;
};

struct file {
	const struct cred *f_cred;
};

struct socket {
	struct file *file;
};

struct sock {
	struct sock_common __sk_common;
	u8 sk_kern_sock : 1;
	u16 sk_type;
	int sk_err;
	struct socket *sk_socket;
};

struct ip_options {
	unsigned char srr;
};

struct ip_options_rcu {
	struct ip_options opt;
};

struct ipv6_rt_hdr;

struct ipv6_txoptions {
	struct ipv6_rt_hdr *srcrt;
};

struct ipv6_pinfo {
	struct ipv6_txoptions *opt;
};

struct inet_sock {
	struct ipv6_pinfo *pinet6;
	struct ip_options_rcu *inet_opt;
};

struct sk_buff {
	struct sock *sk;
	unsigned long _skb_refdst;
};

struct rtable {
	unsigned int rt_flags;
};

struct bpf_sock_ops_kern {
	struct sock *sk;
};

struct tcp_sock {
	u64 bytes_acked;
	u64 bytes_received;
	u32 srtt_us;
};

struct bpf_sock_addr_kern {
	struct sock *sk;
};

struct udp_sock;

struct bpf_iter__udp {
	struct udp_sock *udp_sk;
};

struct bpf_iter__tcp {
	struct sock_common *sk_common;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct___caller {
	struct nsproxy *nsproxy;
};

#pragma clang attribute pop

/* Whether kernel types may be read, which takes CAP_PERFMON to load. If not, programs do without the facts that need them. */
const volatile bool may_read_kernel = false;

/* The kernel's own form of a program's context (6.2). */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

/* The object of that type at this address. Reads of it cannot fault: they yield 0 (6.2). */
extern void *bpf_rdonly_cast(const void *object, u32 type) __ksym;
