/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Counters and events. */
#pragma once

#include "maps.h"

static __always_inline void count(u32 reason)
{
	u64 *counter = bpf_map_lookup_elem(&reasons, &reason);

	if (counter)
		*counter += 1;
}

/* Counts the event, and sends it to the agent. A full buffer loses the event, never the count. */
static __always_inline void emit(const struct event *facts)
{
	struct event *event;

	count(facts->reason);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return;
	*event = *facts;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline void emit_event(u32 reason, u64 netns, u8 protocol, const struct endpoint *to, u32 service)
{
	struct event facts = {
		.time_ns = bpf_ktime_get_ns(),
		.netns = netns,
		.frontend = *to,
		.service = service,
		.reason = reason,
		.pid = bpf_get_current_pid_tgid() >> 32,
		.protocol = protocol,
	};

	emit(&facts);
}
