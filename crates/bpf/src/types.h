/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Types of the parts that know neither kernel nor map. They are compiled twice: into the programs, and for this machine
 * by their tests (tests/pure.rs).
 */
#pragma once

#include <stdbool.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
