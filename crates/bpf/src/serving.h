/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whether a socket's backend still serves. */
#pragma once

#include "maps.h"
#include "stable_read.h"

/* Whether the backend is still one of the Service's, and its number has not been reused. */
static __always_inline bool still_serves(const struct translation *translation)
{
	struct member_key key = { .service = translation->service, .backend = translation->backend_index };
	struct backend *backend = bpf_map_lookup_elem(&backends, &key.backend);

	return backend && backend->generation == translation->generation && is_in_table(&members, &key);
}
