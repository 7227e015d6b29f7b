/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which of its backends a Service uses next. Randomness and time come from the caller. */
#pragma once

#include "types.h"

/*
 * One place of a Service's list. A backend's weight is kept by Vose's alias method: a place holds a backend and another
 * one, and takes the first with the chance `own` / 2^32. So a choice is two random numbers and one look-up for any
 * number of backends and any weights. With equal weights every place is wholly its own.
 */
struct slot {
	u32 backend; /* index into the backends */
	u32 other;
	u32 own;
	u32 pad;
};

#define WHOLLY_OWN 0xffffffffu

/* 0 <= result < count, each equally likely but for 2^-32; `count` is not 0. */
static inline u32 scale(u32 random, u32 count)
{
	return (u32)((u64)random * count >> 32);
}

/* Both are read, and one is taken: an address that depends on a number is more than CAP_BPF alone allows (Spectre). */
static inline u32 slot_choose(const struct slot *slot, u32 random)
{
	u32 backend = slot->backend, other = slot->other;

	__asm__ volatile("" : "+r"(backend), "+r"(other));
	return random <= slot->own ? backend : other;
}

/* Whether something last used at `then` has not been used for `seconds` at `now`; a clock read elsewhere may be ahead. */
static inline bool has_expired(u64 now_ns, u64 then_ns, u32 seconds)
{
	return now_ns > then_ns && now_ns - then_ns > (u64)seconds * 1000000000ull;
}
