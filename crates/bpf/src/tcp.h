/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The fields of the kernel's TCP sockets that are read. The loader relocates each to its offset in the running kernel (CO-RE). */
#pragma once

#include "types.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long long counter;
} atomic64_t;

struct sock;

struct file {
	unsigned int f_flags;
};

struct socket {
	struct file *file;
};

struct sock_common {
	atomic64_t skc_cookie;
	unsigned long skc_flags;
	struct sock *skc_listener;
};

struct sock {
	struct sock_common __sk_common;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	int sk_rcvbuf;
	int sk_rcvlowat;
	u8 sk_shutdown;
	void *sk_user_data;
	struct socket *sk_socket;
};

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

/* The kernel's state of a socket in a sockmap. */
struct sk_psock {
	u32 msg_tot_len;
	refcount_t refcnt;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const void *icsk_ulp_ops;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 write_seq;
	bool is_mptcp;
};

struct bpf_sock_ops_kern {
	struct sock *sk;
};

enum sock_flags {
	SOCK_ZEROCOPY,
};

#pragma clang attribute pop

#define SEND_SHUTDOWN 2
#define O_NONBLOCK 04000

/* The kernel's own form of a program's context. */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

extern void *bpf_rdonly_cast(const void *object, u32 type) __ksym;

/* The socket at this address, or whatever is there now: reads cannot fault. */
#define sock_at(address) ((const struct sock *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct sock)))

/* Flag bits in the lowest bits of sk_user_data, and the bit that marks a psock. */
#define USER_DATA_MARKS 7ull
#define USER_DATA_IS_PSOCK 4

static __always_inline const struct sk_psock *psock_of(const struct sock *sock)
{
	u64 data = (u64)BPF_CORE_READ(sock, sk_user_data);

	return data & USER_DATA_IS_PSOCK ? (const struct sk_psock *)(data & ~USER_DATA_MARKS) : NULL;
}

enum caller {
	NOBODY,   /* not accepted yet */
	KERNEL,   /* a socket without a file */
	WAITS,    /* a program that blocks in its calls */
	NEVER_WAITS,
};

/* What kind of caller uses the socket now. */
static __always_inline enum caller caller_of(const struct sock *sock)
{
	const struct socket *socket = BPF_CORE_READ(sock, sk_socket);
	const struct file *file = socket ? BPF_CORE_READ(socket, file) : NULL;

	if (!socket)
		return NOBODY;
	if (!file)
		return KERNEL;
	return BPF_CORE_READ(file, f_flags) & O_NONBLOCK ? NEVER_WAITS : WAITS;
}
