"""What bench-services is made of: processes of a measurement, in network namespaces. The other measurements are
scenarios of `sidestep lab`.

errors     the error that ends a measurement
settings   limits
places     where the binaries are
procfs     trees of processes
lab        starts processes and stops every one of them again
ring       the library's report files
interleave who goes first, and progress
machine    what a measurement ran on
table      figures as people read them
page       a page of the documentation of which a command writes a part
netns      network namespaces and cgroups of a measurement
talk       a process that is asked line by line
kubeservices/  `make bench-services`
"""
