/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of the Service programs. Sizes are defaults: before loading, the agent sets the sizes of its configuration. */
#pragma once

#include "services.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, struct frontend_key);
	__type(value, struct frontend);
} frontends SEC(".maps");

/* The agent writes the next two maps in place, by mmap: an element that no frontend refers to is unused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 20);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 19);
	__type(key, u32);
	__type(value, struct backend);
} backends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct member_key);
	__type(value, u8);
} members SEC(".maps");

/* All addresses of this node, and whether NodePorts answer there (enum node_address). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 14);
	__type(key, struct address);
	__type(value, u8);
} node_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, struct source_key);
	__type(value, u8);
} source_ranges SEC(".maps");

/* Where pods have their addresses, on all nodes. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 10);
	__type(key, struct network_key);
	__type(value, u8);
} pod_networks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct affinity_key);
	__type(value, struct remembered);
} affinities SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct translation);
} translations SEC(".maps");

/*
 * An unconnected UDP socket's last flow, in the socket's own storage. The tables `flows` and `replies` are LRU and shared by all
 * sockets, so a flood by one socket evicts entries of others.
 */
struct talk {
	struct bpf_spin_lock lock;
	u32 pad;
	struct talked last;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct talk);
} talks SEC(".maps");

/* Unconnected UDP: the backend to which a socket's datagrams for a Service go ... */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, struct remembered);
} flows SEC(".maps");

/* ... and the Service as which a backend's answers are reported. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, struct reply);
} replies SEC(".maps");

/* Connections whose source port bind() has chosen. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct fixed_port_key);
	__type(value, u64); /* the socket's cookie */
} fixed_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << 17);
	__type(key, u32);
	__type(value, struct service_counters);
} service_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MOST_REASONS);
	__type(key, u32);
	__type(value, u64);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

/* Puts the type of the `events` records into the object's BTF. */
const struct event *const event_type __attribute__((used)) = 0;
