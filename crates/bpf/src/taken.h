/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tables of the device's programs: which connections user space has taken, and the AF_XDP socket of each queue. */
#pragma once

#include "address.h"

/* A connection as this host sees it. */
struct taken_key {
	struct address local, remote;
	u16 local_port, remote_port; /* network order */
	u16 vlan;		     /* VLAN id of its frames; 0: untagged, or tagged with priority only */
	u16 pad;
};

/* Where a connection's frames go: set by user space. The same numbers are in crates/device/src/taken.rs. */
enum taken_state {
	DELIVERED = 1, /* to user space */
	OBSERVED,      /* to the kernel, and the first one is noted */
};

struct taken_value {
	u32 state;   /* enum taken_state */
	u32 is_seen; /* set by the programs */
};

/* User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct taken_key);
	__type(value, struct taken_value);
} taken SEC(".maps");

/* Index: the number of the receive queue. User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

/* What becomes of a frame. */
enum fate {
	TO_KERNEL,
	TO_USER,
	TO_NOBODY,
	UNCLEAR, /* it takes a closer look */
};

static __always_inline enum fate fate_of(const struct taken_key *key)
{
	struct taken_value *value = bpf_map_lookup_elem(&taken, key);

	if (!value)
		return TO_KERNEL;
	if (value->state == DELIVERED)
		return TO_USER;
	/* User space exchanges entries, and this one may be another connection's by now: what is written changes nothing for one that is
	   delivered. It is written once only. */
	if (!value->is_seen)
		value->is_seen = 1;
	return TO_KERNEL;
}
