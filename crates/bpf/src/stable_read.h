/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stable reads of hash table entries that user space replaces. The kernel inserts the new entry in front of its bucket, then
 * removes the old one, and the next change of any entry reuses the old one's memory without a grace period. So a concurrent
 * reader may find neither entry, or may see another key's value in the entry that it has found.
 *
 * User space replaces no entry twice within a grace period, and each run of a program lies within one: of all readings of one
 * entry in one run at most one is spoiled. So an entry is missing only if two look-ups miss it, and a value is right if two
 * readings agree. crates/ebpf/tests/exchange.rs models this.
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

/* Copies what has changed; returns whether anything had. Sizes are known at compile time. */
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

/* Reads the entry once; false if it is not there. */
static __always_inline bool read_once(void *map, const void *key, void *copy, u32 size, bool *is_new)
{
	void *entry = find_entry(map, key);

	if (entry)
		*is_new = renew_copy(copy, entry, size);
	return entry != NULL;
}

/*
 * A copy of the entry, as user space has written it; false: there is none. If two readings differ, the replacement has happened,
 * and the third one is right. Not a loop: without CAP_PERFMON the verifier also follows mispredicted loop ends.
 */
static __always_inline bool read_entry(void *map, const void *key, void *copy, u32 size)
{
	bool is_new;

	if (!read_once(map, key, copy, size, &is_new) || !read_once(map, key, copy, size, &is_new))
		return false;
	return !is_new || read_once(map, key, copy, size, &is_new);
}

#define READ_ENTRY(map, key, copy) read_entry(map, key, copy, sizeof(*(copy)))
