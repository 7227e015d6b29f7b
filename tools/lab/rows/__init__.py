"""The rows of `make bench`, in the order of its table."""

from .costs import IdleCompile, IdleFind, IdlePipe, IdleStart, IdleWrk
from .idle import Idle
from .programs import Connect, Files, NotOurs, PingPong, Stream
from .redis import Redis
from .web import EnvoyHttp, EnvoyTcp, Nginx1, Nginx64

ROWS = (Nginx64, Nginx1, EnvoyTcp, EnvoyHttp, PingPong, Stream, Files, Redis, Connect, NotOurs, Idle, IdleWrk, IdleCompile, IdleFind,
        IdlePipe, IdleStart)
