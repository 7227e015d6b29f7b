"""What the test programs in Python share: namespaces, cgroups, commands, processes, `sidestep run` and its reports, leftovers.

Each program puts tests/ in front of `sys.path`; so this package is `testkit`, and the modules of tests/NAME are `NAME.MODULE`.
"""
