module nodedevice.io/hack/bench/minimal-extender

go 1.26.0
