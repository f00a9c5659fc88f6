import time, pytest
from tests.integration.operator_process import *
from tests.cluster.observe import Observer, capacity

def test_try(installed, namespace, tmp_path):
    op = OperatorProcess(installed, tmp_path / "op", "--log-level", "debug")
    op.start()
    try:
        n = PlayedNode(installed); n2 = PlayedNode(installed)
        with Observer.nodes(installed.admin_kubeconfig) as obs:
            n.make(); n.renew_lease()
            t = n.publish(healthy=4)
            s = obs.wait(lambda s: capacity(s, n.name, GPU) == 4, t)
            print("first ms", (s.at - t)*1000)
            for k in (3,4,2,4,1,4):
                t = n.publish(healthy=k, broken=4-k)
                s = obs.wait(lambda s: capacity(s, n.name, GPU) == k, t)
                print("flip ms", (s.at - t)*1000)
            t = n.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
            s = obs.wait(lambda s: capacity(s, n.name, GPU) == 4, t+0.003)
            print("repair ms", (s.at - t)*1000)
            n.wait_events("CapacityRepaired")
        print(installed.kubectl("get", "nd", "-o", "wide"))
        n.wait_condition("Ready", "True")
        print(installed.kubectl("get", "nd", "-o", "wide"))
        print(n.conditions())
        print("rss", op.rss_mib())
        t = time.monotonic(); print(op.stop(), time.monotonic()-t)
    finally:
        print(op.log.read_text()[-9000:])
        op.close()
