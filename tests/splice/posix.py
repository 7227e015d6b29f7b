#!/usr/bin/env python3
"""The cases of tests/posix, on sockets that are spliced.

  tests/splice/posix.py [--sidestep PATH] [--posix-run PATH] [--filter TEXT] [--quick]

Twice, in a network namespace and a cgroup of their own, with every port opted in:

  as it is      programs that wait in their calls are left alone, as most cases do: every case must pass
  --blocking    everything is spliced that can be: every byte must be the right one, and what fails must be what the
                kernel's sockmap is known to do otherwise than TCP (KNOWN, and docs/splice.md); --quick: only this

The last line is `splice: N passed, N failed`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testkit import cgroups, console
from testkit.bpffs import BpfFileSystem
from testkit.commands import run
from testkit.namespaces import Namespace
from testkit.paths import TARGET
from testkit.testbed import Testbed

# What each does otherwise, and the cases that see it. Not all of them do in every run.
KNOWN = {
    "a blocked call that something else wakes up says EAGAIN": [
        "blocking.every_receive_waits", "blocking.two_threads_wait_for_one_socket",
        "close.blocked_reader_after_a_cancelled_one", "close.blocked_reader_beside_a_cancelled_one",
        "close.blocked_reader_is_woken_by_shutdown", "crossed.handler_closes_what_its_thread_reads",
        "dup.blocked_reader_is_sent_away_by_signal", "interrupted.handler_forks", "interrupted.receives_restart",
        "interrupted.receives_say_eintr",
        "nonblocking.filled_then_waits_only_for_the_answer", "reset.wakes_a_blocked_reader",
        "stream.readers_share_a_socket",
    ],
    "MSG_WAITALL is not obeyed": [
        "blocking.waitall_gets_all", "blocking.waitall_peeks_until_the_stream_ends", "flags.peek_waitall",
        "limits.small_thread_stack", "stream.long_records_of_two_writers_stay_whole",
    ],
    "SO_RCVLOWAT is not obeyed": ["blocking.low_water_mark_above_what_is_unread", "blocking.receive_low_water_mark"],
    "receiving nothing says 0 at once": ["blocking.zero_lengths"],
    "splice(2), tee(2) and sendfile(2) see nothing": [
        "calls.recv_by_splice", "calls.recv_by_tee", "nonblocking.every_receive_says_eagain",
        "splicing.proxy_by_splice", "splicing.sendfile_from_a_socket_into_a_pipe", "splicing.socket_to_file",
        "splicing.splice_from_an_empty_socket", "splicing.splice_sees_the_end", "splicing.splice_wakes_for_data",
        "undelivered.the_kernel_moves_the_rest",
    ],
    "MSG_TRUNC is not obeyed": [
        "flags.truncate_discards_with_null_buffer", "flags.truncate_drains_a_stream",
        "flags.truncate_with_a_buffer_writes_nothing", "flags.truncate_and_peek_writes_nothing",
    ],
    "SO_PEEK_OFF is not obeyed": ["flags.peek_offset_of_the_listener"],
    "recvmsg(2) brings no ancillary data": [
        "ancillary.tcp_inq_of_a_listener", "ancillary.tcp_inq_tells_what_is_left", "ancillary.tcp_inq_with_little_room",
        "ancillary.timestamps_come_with_the_bytes",
    ],
    "closing with unread bytes is no reset": [
        "death.reset_behind_a_part_of_what_is_waited_for", "death.stopped_then_killed", "death.with_unread_data_is_a_reset",
        "dup.over_a_live_socket",
        "reset.peer_closed_with_unread_data_v4", "reset.peer_closed_with_unread_data_v6", "reuse.socket_after_socket",
    ],
    "a reset is told by every write, not by the first only": [
        "connect.disconnected_and_connected_again", "connect.disconnected_with_a_copy", "reset.write_after_it",
        "told_once.after_a_receive_that_brought_something", "told_once.peer_that_shut_both_ways_answers_with_a_reset",
        "told_once.recvmmsg_says_it_before_messages", "told_once.waits_leave_the_error_of_a_reset",
        "told_once.write_with_bytes_of_ours_unread",
    ],
    "a blocked call looks at the socket's state again, not at what it began with": [
        "told_once.blocked_call_whose_number_moves", "told_once.nonblock_set_while_a_call_blocks",
    ],
    "urgent bytes are ordinary ones": [
        "urgent.byte_beside_the_stream", "urgent.exceptional_for_poll_epoll_select", "urgent.inline",
        "urgent.none_there", "urgent.raises_sigurg", "urgent.reads_stop_at_the_mark", "urgent.sent_by_us",
        "urgent.stream_goes_on_afterwards", "select.news_beside_a_hang_up",
    ],
    "what is written to a peer that has shut both ways is not answered by a reset": [
        "end.shut_both_with_bytes_of_kernel_and_ring_unread", "reset.shutdown_afterwards_wakes",
    ],
    "SO_ZEROCOPY is refused": ["zero_copy.completions_are_reported", "zero_copy.mixed_with_plain_sends"],
    "nothing waits in the writer's buffer": ["looking.siocoutq_and_fionread_add_up"],
    "FIONREAD does not count what TCP brings after what is queued": [
        "looking.fionread_counts_exactly", "looking.fionread_in_mid_stream", "flags.peek_sees_what_arrives_later",
        "counts.of_messages",
    ],
    # The cases of `handlers` use a call with a bad pointer to have the library's own handlers in spliced.
    "sending from memory that cannot be read says 0, not EFAULT": [
        "bad_pointers.behind_a_good_beginning", "bad_pointers.in_threads_that_block_signals",
        "bad_pointers.of_a_truncated_file", "bad_pointers.to_what_is_sent", "handlers.are_shown_as_they_are_set",
        "handlers.blocked_signals", "handlers.blocked_signals_are_shown", "handlers.by_system_call",
        "handlers.default_ends_the_process", "handlers.for_one_signal", "handlers.have_their_stack",
        "handlers.ignored_stay_ignored_by_exec", "handlers.installed_past_libc", "handlers.jump_out",
        "handlers.may_nest_or_not", "handlers.of_sent_signals", "handlers.see_what_the_kernel_says",
    ],
    "receiving into memory of which only the beginning can be written fills that": ["bad_pointers.to_room_for_what_comes"],
}


class Spliced(Testbed):
    """A namespace and a cgroup, and what is spliced there."""

    def __init__(self, sidestep):
        super().__init__(("ip", "nsenter"), "test", keep=False)
        self.sidestep = sidestep

    def start(self):
        super().start()
        self.namespace = Namespace("splice")
        self.stack.callback(self.namespace.remove)
        self.cgroup = cgroups.of_this_run("splice")
        self.stack.callback(self.cgroup.remove)
        self.bpffs = BpfFileSystem(self.directory / "bpf")
        self.bpffs.mount()
        self.stack.callback(self.bpffs.unmount)

    def __exit__(self, *_):
        try:
            self.splice("--remove")
        finally:
            super().__exit__()

    def splice(self, *words):
        return run(self.sidestep, "splice", *words, "--pins", self.bpffs.pins)

    def posix(self, runner, filters):
        """Names of those that failed, and how many passed."""
        # Most of what fails here waits until it is ended, so many may wait at a time.
        words = self.cgroup.around(self.namespace.around([runner, "--mode", "plain", "--jobs", "6", "--json", *filters]))
        said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        cases = json.loads(said)["cases"]
        failed = [case["name"] for case in cases if case["failure"]]
        return set(failed), len(cases) - len(failed)

    def fails_again(self, runner, name):
        print(f"unsteady: {name}")
        return name in self.posix(runner, ["--filter", name])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sidestep", default=TARGET / "release" / "sidestep")
    parser.add_argument("--posix-run", default=TARGET / "debug" / "posix-run")
    parser.add_argument("--filter", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    console.must_be_root("tests/splice/posix.py")
    console.end_by_signals()
    filters = [word for text in args.filter for word in ("--filter", text)]
    known = {name for names in KNOWN.values() for name in names}
    passed, wrong = 0, []
    with Spliced(args.sidestep) as spliced:
        ways = [((), set()), (("--blocking",), known)]
        for also, excused in ways[1:] if args.quick else ways:
            spliced.splice("--port", "1024-65535", "--cgroup", spliced.cgroup.path, *also)
            failed, good = spliced.posix(args.posix_run, filters)
            # What fails once on a busy machine is shown, and runs again.
            twice = [name for name in sorted(failed - excused) if spliced.fails_again(args.posix_run, name)]
            passed += good + len(failed) - len(twice)
            wrong += [f"{name} {' '.join(also)}" for name in twice]
        status = json.loads(spliced.splice("status", "--json"))
    print(f"{status['bytes']} bytes in {status['messages']} messages went from socket to socket")
    for name in wrong:
        print(f"failed: {name}")
    if not status["bytes"]:
        wrong.append("nothing was spliced")
    print(f"splice: {passed} passed, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
