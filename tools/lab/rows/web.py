"""wrk against nginx, directly and through Envoy."""

from ..services import Chain
from ..variant import NO_SPIN, PINNED, PLAIN, SIDESTEP
from ..wrk import Wrk
from .base import Cell, Metric, Row, Sample, at_least


class WebRow(Row):
    path, connections, with_envoy = "direct", 64, False
    metrics = ()

    def prepare(self):
        self.wrk = Wrk(self.lab, self.places, self.starter)
        self.chains = {
            variant.name: Chain(self.lab, self.places, self.starter, variant, self.with_envoy)
            for variant in self.measured
        }

    def cells(self):
        return [Cell(self.about, self.metrics, self.measure)]

    def measure(self, variant):
        run = self.wrk.run(self.chains[variant.name], self.path, self.connections, self.plan.wrk_seconds)
        keys = ("rate", "p50", "p90", "p99", "cpu")
        return Sample({key: getattr(run, key) for key in keys}, run.traffic)


class Nginx64(WebRow):
    name = "nginx-64"
    about = "wrk -> nginx, 64 connections"
    targets = "requests/s 3.5x"
    metrics = (Metric("rate", "requests/s", "higher", {"sidestep": at_least(3.5)}),)


class Nginx1(WebRow):
    name = "nginx-1"
    about = "wrk -> nginx, 1 connection"
    targets = "p50 5x with spin auto when a core is free"
    variants = (PLAIN, PINNED, SIDESTEP, NO_SPIN)
    connections = 1
    metrics = (Metric("p50", "p50, us", "lower", {"sidestep": at_least(5)}),)


class EnvoyTcp(WebRow):
    name = "envoy-tcp"
    about = "wrk -> Envoy tcp_proxy -> nginx, 64"
    targets = "requests/s 2.5x"
    path, with_envoy = "tcp_proxy", True
    metrics = (Metric("rate", "requests/s", "higher", {"sidestep": at_least(2.5)}),)


class EnvoyHttp(WebRow):
    name = "envoy-http"
    about = "wrk -> Envoy HTTP -> nginx, 64"
    targets = "requests/s 1.3x, p90 -35 %"
    path, with_envoy = "http", True
    metrics = (
        Metric("rate", "requests/s", "higher", {"sidestep": at_least(1.3)}),
        Metric("p90", "p90, us", "lower", {"sidestep": at_least(1 / 0.65, "-35 %")}),
    )
