"""Load measurements: programs on kernel TCP and under Sidestep, in turn, on loopback.

errors     the error that ends a measurement
settings   every number and port range a measurement uses, in one place
places     where the binaries are
procfs     CPU and memory of process trees
lab        starts processes and stops every one of them again
variant    how a program is started: plain, pinned to one core, under Sidestep
ring       the library's report files
stats      medians, paired ratios and their spread
interleave variants in turn, with progress
services   nginx, Envoy, redis
bodies     what curl gets must be byte-identical
program    the small programs of tests/bench
wrk        the load generator
machine    what a measurement ran on
table      text tables
svg        the picture
page       a page of the documentation of which a command writes a part
demo       `make demo`
bench      `make bench`, with its rows in rows/
netns      network namespaces and cgroups of a measurement
talk       a process that is asked line by line
kubeservices/  `make bench-services`
mesh/      `make bench-mesh`
"""
