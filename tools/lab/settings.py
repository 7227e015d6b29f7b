"""Every figure that decides what is measured and for how long."""

from dataclasses import dataclass

#: Ports are taken from below the range that connect() uses, so that no client's own port is in the way.
PORTS = range(20000, 32000)

#: The body that nginx returns for the small request: what an API answers, not a page.
SMALL_BODY = b'{"status":"ok","service":"sidestep-demo"}\n'
#: The static file, served with sendfile().
FILE_BYTES = 100_000

#: A service must answer within this many seconds after its start.
START_LIMIT = 20.0
#: A process may take this long to end after SIGTERM before it is killed.
STOP_LIMIT = 10.0
#: A load run may take this much longer than asked before it is given up.
RUN_SLACK = 20.0


@dataclass(frozen=True)
class DemoPlan:
    """What `make demo` measures: 3 paths x connections x pairs x 2 runs of `seconds`."""

    connections: tuple = (1, 16, 64)
    pairs: int = 7
    seconds: int = 1

    @staticmethod
    def quick():
        return DemoPlan(connections=(16,), pairs=1)


@dataclass(frozen=True)
class BenchPlan:
    """What `make bench` measures; `pairs` is the number of rounds through all variants."""

    pairs: int = 5
    #: One run of a load generator or of one of the small programs.
    wrk_seconds: int = 1
    program_seconds: float = 0.6
    #: One of the twelve cells of the file table.
    file_seconds: float = 0.3
    #: Many rounds, because a difference of 3 % is looked for and runs differ by as much
    #: (one process in five pays a fifth more for its unix sockets, with or without Sidestep).
    notours_seconds: float = 0.8
    notours_rounds_a_pair: int = 3
    #: The same difference, of whole programs.
    cost_rounds_a_pair: int = 3
    one_byte_reads: int = 10_000_000
    redis_requests: int = 100_000
    redis_clients: int = 50
    #: Few enough that a row cannot use up the ports that wait in TIME_WAIT.
    new_connections: int = 4000
    idle_connections: int = 10_000
    idle_seconds: float = 5.0
    #: The TCP stream that runs beside the file transfers.
    background_bytes_per_second: int = 5_000_000

    @staticmethod
    def quick():
        return BenchPlan(
            pairs=1,
            program_seconds=0.2,
            file_seconds=0.1,
            notours_seconds=0.3,
            notours_rounds_a_pair=1,
            cost_rounds_a_pair=1,
            one_byte_reads=500_000,
            redis_requests=20_000,
            new_connections=500,
            idle_connections=500,
            idle_seconds=1.0,
        )
