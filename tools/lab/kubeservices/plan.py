"""Every number of the measurement."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    sizes: tuple = (1, 100, 1_000, 10_000, 30_000)
    #: Through all contestants, at each size.
    rounds: int = 40
    endpoints: int = 12
    #: One turn of one contestant. Short, so that what disturbs the machine meets all of them alike.
    short_seconds: float = 0.15
    keep_seconds: float = 0.1
    #: The first and the last Service are dialled in one round of so many, the middle one in all.
    position_every: int = 5
    #: Pairs of changes, there and back.
    changes: int = 5
    #: No more changes of a contestant after this time, at one size.
    changes_seconds: float = 15.0
    #: Who has not loaded all Services by then is measured with endpoints of the dialled ones only.
    load_limit: float = 120.0
    change_limit: float = 60.0
    #: As many Services are written to an API server at most, and it may take so long for them.
    most_written: int = 10_000
    write_limit: float = 300.0
    #: An answer of the client may be so much later than what was asked for.
    answer_limit: float = 30.0

    @staticmethod
    def quick():
        return Plan(sizes=(1, 100), rounds=8, changes=2)
