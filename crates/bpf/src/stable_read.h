/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Entries of hash tables that user space exchanges. The kernel puts the new entry in front of its bucket, then takes the old
 * one out, and the next change of any entry writes into the old one's memory, without a grace period. So a reader in between
 * may find neither of the two, or see another key's value where it has found its own.
 *
 * User space exchanges no entry twice within a grace period, and the programs run within one: of all readings of one
 * entry in one run at most one can be spoiled. So an entry is missing only if two look-ups miss it, and its value is right
 * only if two readings agree. crates/ebpf/tests/exchange.rs has a model of this.
 */
#pragma once

#include <bpf/bpf_helpers.h>

#include "types.h"

static __always_inline void *find_entry(void *map, const void *key)
{
	void *entry = bpf_map_lookup_elem(map, key);

	return entry ? entry : bpf_map_lookup_elem(map, key);
}

static __always_inline bool is_in_table(void *map, const void *key)
{
	return find_entry(map, key) != NULL;
}

/* Takes over what is new; returns whether anything was. Sizes are known when this is compiled. */
static __always_inline bool renew_copy(void *copy, const void *entry, u32 size)
{
	u32 changed = 0;

	if (size % sizeof(u32) == 0) {
#pragma unroll
		for (u32 i = 0; i < size / sizeof(u32); i++) {
			u32 word = ((const volatile u32 *)entry)[i];

			changed |= word ^ ((u32 *)copy)[i];
			((u32 *)copy)[i] = word;
		}
		return changed;
	}
#pragma unroll
	for (u32 i = 0; i < size; i++) {
		u8 byte = ((const volatile u8 *)entry)[i];

		changed |= byte ^ ((u8 *)copy)[i];
		((u8 *)copy)[i] = byte;
	}
	return changed;
}

/* One reading of the entry; false if it is not there. */
static __always_inline bool read_once(void *map, const void *key, void *copy, u32 size, bool *is_new)
{
	void *entry = find_entry(map, key);

	if (entry)
		*is_new = renew_copy(copy, entry, size);
	return entry != NULL;
}

/*
 * A copy of the entry, as user space has written it. False: there is none. If two readings differ, the exchange has happened,
 * and the third one is right. No loop: the verifier of whoever lacks CAP_PERFMON follows what a processor may guess of its end.
 */
static __always_inline bool read_entry(void *map, const void *key, void *copy, u32 size)
{
	bool is_new;

	if (!read_once(map, key, copy, size, &is_new) || !read_once(map, key, copy, size, &is_new))
		return false;
	return !is_new || read_once(map, key, copy, size, &is_new);
}

#define READ_ENTRY(map, key, copy) read_entry(map, key, copy, sizeof(*(copy)))
