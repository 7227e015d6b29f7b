/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Functions that the verifier checks once, by themselves. Of an inlined or static function it follows every path on every path of
 * the caller, so their numbers multiply: that takes it seconds. The pointers of such a function may be NULL for all it knows, and
 * the caller must have written what they point to.
 */
#pragma once

#include "types.h"

#define VERIFIED_ONCE __attribute__((noinline))

/*
 * A yes or no that such a function has returned. The compiler knows that it is 0 or 1, so it would return it as it is; the
 * verifier does not know, and wants to see a program choose between the two.
 */
static __always_inline int yes_or_no(int returned)
{
	__asm__ volatile("" : "+r"(returned));
	return returned ? 1 : 0;
}
