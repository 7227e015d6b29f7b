/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The life of a watched connection: dialled or accepted, established, over. */
#pragma once

#include "orig_dst.h"
#include "kernel.h"
#include "repair.h"
#include "watch.h"

#define ECONNRESET 104
#define EPIPE 32
#define ETIMEDOUT 110

/* Set at load. If false, the verifier removes all code of this file. */
const volatile bool watching = false;

VERIFIED_ONCE u32 number_of(const struct address *address)
{
	u32 *generation, zero = 0;
	struct identity identity = {};

	if (!address)
		return IDENTITY_UNKNOWN;
	generation = bpf_map_lookup_elem(&current, &zero);
	return generation && identity_of(*generation, address, &identity) ? identity.number : IDENTITY_UNKNOWN;
}

/* The Service that this socket has dialled; 0: none. */
static __always_inline u32 service_of(struct bpf_sock *sock, const struct endpoint *peer)
{
	struct translation *translation = bpf_sk_storage_get(&translations, sock, NULL, 0);

	if (!translation || !translation->connected || !endpoint_equal(&translation->backend, peer))
		return 0;
	return translation->service;
}

static __always_inline bool is_loopback(const struct address *a)
{
	return address_is_v4_loopback(a) || address_is_v6_loopback(a);
}

/* Whether the connection is between a pod's programs and its own proxy, which does not count as a connection of the pod. */
static __always_inline bool is_inside(const struct address *local, const struct address *peer)
{
	return is_loopback(local) || is_loopback(peer) || address_equal(local, peer);
}

static __always_inline bool is_concerned(u64 netns, u32 service)
{
	return service || is_in_table(&policed_pods, &netns) || is_in_table(&pods, &netns);
}

static __always_inline void watch(struct bpf_sock_ops *ops, u64 netns, u32 side)
{
	struct endpoint local = local_end(ops), peer = remote_end(ops);
	struct relation_key key = { .side = side };
	struct bpf_sock *sock = ops->sk;
	struct watched *watched;
	struct relation *relation;
	u32 own, other;

	if (!sock || is_inside(&local.address, &peer.address))
		return;
	key.service = side == SIDE_CLIENT ? service_of(sock, &peer) : 0;
	if (!is_concerned(netns, key.service))
		return;
	own = number_of(&local.address);
	other = number_of(&peer.address);
	key.client = side == SIDE_CLIENT ? own : other;
	key.server = side == SIDE_CLIENT ? other : own;
	relation = relation_of(&key);
	watched = relation ? bpf_sk_storage_get(&watches, sock, NULL, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
	if (!watched)
		return;
	*watched = (struct watched){ .key = key, .began_ns = bpf_ktime_get_ns(), .established = side == SIDE_SERVER };
	ADD(relation->attempts, 1);
	if (side == SIDE_SERVER)
		ADD(relation->connections, 1);
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* Step by step: indexing by a variable is pointer arithmetic for which the verifier demands CAP_PERFMON. */
static __always_inline void note_latency(struct relation *relation, u32 place)
{
	u64 *latency = relation->latencies;

	for (u32 i = 0; i < LATENCIES - 1 && i < place; i++)
		__asm__ volatile("%0 += 8" : "+r"(latency));
	ADD(*latency, 1);
}

static __always_inline void note_established(struct bpf_sock_ops *ops, struct watched *watched)
{
	struct relation *relation = relation_of(&watched->key);

	watched->established = 1;
	if (!relation)
		return;
	ADD(relation->connections, 1);
	note_latency(relation, bits_of((bpf_ktime_get_ns() - watched->began_ns) / 1000));
}

/* The socket's error; 0 if unknown or none. */
static __always_inline u32 error_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock_ops_kern *context;

	if (!may_read_kernel)
		return 0;
	context = bpf_cast_to_kern_ctx(ops);
	return BPF_CORE_READ(context, sk, sk_err);
}

static __always_inline void note_failure(struct relation *relation, u32 error, bool established)
{
	if (error == ETIMEDOUT)
		ADD(relation->failures[FAILED_TIMEOUT], 1);
	else if (established && (error == ECONNRESET || error == EPIPE))
		ADD(relation->failures[FAILED_RESET], 1);
	else if (!established && error == ECONNREFUSED)
		ADD(relation->failures[FAILED_REFUSED], 1);
	else if (!established || error)
		ADD(relation->failures[FAILED_OTHERWISE], 1);
}

static __always_inline void note_end(struct bpf_sock_ops *ops, struct watched *watched)
{
	struct relation *relation = relation_of(&watched->key);

	if (!relation)
		return;
	note_failure(relation, error_of(ops), watched->established);
	if (!watched->established)
		return;
	ADD(relation->closed, 1);
	add_traffic(relation, watched, ops->bytes_acked, ops->bytes_received, ops->srtt_us);
}

static __always_inline struct watched *watched_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sock = ops->sk;

	return sock ? bpf_sk_storage_get(&watches, sock, NULL, 0) : NULL;
}

/* A connection leaves the kernel, which will count it from 0 again. It has not ended. */
static __always_inline void note_leaving(struct bpf_sock_ops *ops, struct watched *watched)
{
	struct relation *relation = relation_of(&watched->key);

	if (relation)
		add_traffic(relation, watched, ops->bytes_acked, ops->bytes_received, ops->srtt_us);
	watched->sent = watched->received = 0;
}

static __always_inline void note_closed(struct bpf_sock_ops *ops)
{
	struct watched *watched = watched_of(ops);

	if (watched && is_in_repair(ops))
		note_leaving(ops, watched);
	else if (watched)
		note_end(ops, watched);
}

/* A connection that is given back is watched as before. */
static __always_inline void watch_life(struct bpf_sock_ops *ops)
{
	struct watched *watched;

	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (!is_in_repair(ops))
			watch(ops, bpf_get_netns_cookie(ops), SIDE_CLIENT);
		return;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		watch(ops, bpf_get_netns_cookie(ops), SIDE_SERVER);
		return;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		watched = watched_of(ops);
		if (watched && !is_in_repair(ops))
			note_established(ops, watched);
		return;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE)
			note_closed(ops);
		return;
	}
}
