/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Addresses of the node's pods that policies for incoming traffic select, as the API server and their Captures know them. Packets to
 * them keep their source: such policies are about the client, and the node, whose address packets get otherwise, is always allowed.
 */
#pragma once

#include "address.h"
#include "stable_read.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, struct address);
	__type(value, u8);
} isolated_addresses SEC(".maps");

static __always_inline bool is_isolated(const struct address *address)
{
	return is_in_table(&isolated_addresses, address);
}
