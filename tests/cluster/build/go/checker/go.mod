module nodedevice.io/tests/cluster/checker

go 1.26.0
