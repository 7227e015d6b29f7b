/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Types for the parts that use neither kernel types nor maps. Those parts are compiled twice: into the programs, and for this
 * machine in their tests (tests/pure.rs).
 */
#pragma once

#include <stdbool.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
