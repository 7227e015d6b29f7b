// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * No hook runs when a connected UDP socket sends: once its backend has gone, only another connect() gives it a new one. This
 * iterator walks the descriptors of all processes and reports those of such sockets, and those of sockets that were aborted
 * earlier because their Service had no backend. User space then calls connect() on behalf of the processes.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "stale.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct descriptor {
	u32 process;
	u32 number;
	struct endpoint frontend; /* what the process has dialled */
	u32 family;		  /* of the socket */
	u32 aborted;
};

/* Puts the type of the iterator's records into the object's BTF. */
const struct descriptor *const descriptor_type __attribute__((used)) = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* one for each PID namespace, from the outermost to the process's own, at `level` */
};

/* enum pid_type */
#define PIDTYPE_TGID 1

struct signal_struct {
	struct pid *pids[4];
};

struct task_struct {
	struct signal_struct *signal;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct socket___stale {
	struct sock *sk;
};

struct sock___stale {
	u16 sk_protocol;
};

#pragma clang attribute pop

static __always_inline struct upid at_level(struct pid *pid, u32 level)
{
	struct upid found = {};
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	bpf_core_read(&found, sizeof(found), numbers + level * sizeof(found));
	return found;
}

/* The process's number in the PID namespace of the iterator's reader; 0: it has none there. */
static __always_inline u32 number_for_reader(struct task_struct *task)
{
	struct task_struct *reader = (struct task_struct *)bpf_get_current_task();
	struct pid *own = BPF_CORE_READ(reader, signal, pids[PIDTYPE_TGID]);
	struct pid *pid = BPF_CORE_READ(task, signal, pids[PIDTYPE_TGID]);
	u32 level = BPF_CORE_READ(own, level);
	struct upid number;

	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	number = at_level(pid, level);
	return number.ns == at_level(own, level).ns ? number.nr : 0;
}

SEC("iter/task_file")
int stale_descriptors(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct descriptor found = {};
	struct translation *translation;
	struct socket___stale *socket;
	struct sock *sock;

	if (!task || !file)
		return 0;
	socket = (struct socket___stale *)bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sock = socket->sk;
	if (!sock || ((struct sock___stale *)sock)->sk_protocol != IPPROTO_UDP)
		return 0;
	translation = bpf_sk_storage_get(&translations, sock, NULL, 0);
	if (!translation)
		return 0;
	found.aborted = is_still_aborted(sock, translation);
	if (!found.aborted && !is_stale(sock, translation))
		return 0;
	found.process = number_for_reader(task);
	if (!found.process)
		return 0;
	found.number = ctx->fd;
	found.frontend = translation->frontend;
	found.family = sock->__sk_common.skc_family;
	bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}
