/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Chooses a Service's next backend. The caller supplies random numbers and time. */
#pragma once

#include "types.h"

/*
 * One slot of a Service's list. Weights are kept by Vose's alias method: a slot names two backends and takes the first with
 * probability `own` / 2^32. So a choice costs two random numbers and one look-up, for any number of backends and any weights.
 * With equal weights every slot always takes its first backend.
 */
struct slot {
	u32 backend; /* index into the backends */
	u32 other;
	u32 own;
	u32 pad;
};

#define WHOLLY_OWN 0xffffffffu

/* 0 <= result < count, uniform but for 2^-32; `count` is not 0. */
static inline u32 scale(u32 random, u32 count)
{
	return (u32)((u64)random * count >> 32);
}

/* Both are read, and one is taken: a load from a computed address needs more than CAP_BPF (Spectre). */
static inline u32 slot_choose(const struct slot *slot, u32 random)
{
	u32 backend = slot->backend, other = slot->other;

	__asm__ volatile("" : "+r"(backend), "+r"(other));
	return random <= slot->own ? backend : other;
}

/* Whether `seconds` have passed since `then`. `then` may be later than `now`: another processor's clock may be ahead. */
static inline bool has_expired(u64 now_ns, u64 then_ns, u32 seconds)
{
	return now_ns > then_ns && now_ns - then_ns > (u64)seconds * 1000000000ull;
}
