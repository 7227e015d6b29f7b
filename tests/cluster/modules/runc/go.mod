module sidestep.test/runc

go 1.26.0

require github.com/opencontainers/runc v1.5.2
