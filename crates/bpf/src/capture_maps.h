/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of capture. */
#pragma once

#include "capture.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, u64); /* the network namespace's cookie */
	__type(value, struct pod);
} pods SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct set_key);
	__type(value, u8);
} sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct range_key);
	__type(value, struct route);
} ranges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct captured);
} captures SEC(".maps");

/*
 * What was dialled, from the SYN until the proxy accepts: meanwhile only the dialling end knows it. There is room for 128 pods
 * at the limit of each pod (MOST_PENDING).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 128 * MOST_PENDING);
	__type(key, struct redirected_flow);
	__type(value, struct pending_entry);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 15);
	__type(key, u64); /* the network namespace's cookie */
	__type(value, struct usage);
} usages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct listener_key);
	__type(value, u64);
} listeners SEC(".maps");
