"""`helm install` on a fresh cluster is all: agents and operator as pods, somebody else's plugin, pods with devices."""

import re

from tests.e2e.chart.cluster import ChartCluster
from tests.e2e.chart.workloads import VENDOR_DEVICES, VENDOR_RESOURCE, user, vendor_plugin
from tests.e2e.real_node.device_plugins import device_files
from tests.e2e.recording import RanOn

FILE_RESOURCE = "e2e.example.com/file"


def test_a_pod_has_its_vendors_device(cluster: ChartCluster, ran_on: RanOn) -> None:
    cluster.release.install(cluster.values())
    cluster.apply(vendor_plugin())
    cluster.wait_capacity(VENDOR_RESOURCE, len(VENDOR_DEVICES))
    ran_on(cluster.described)
    cluster.run(user("asks", {VENDOR_RESOURCE: 1}))
    mounted = [path for path in cluster.report_of("asks")["mounts"] if path.rpartition("/")[2] in VENDOR_DEVICES]
    assert len(mounted) == 1, "not what the vendor's plugin gave"
    (allocation,) = cluster.node_device(VENDOR_RESOURCE)["status"]["allocations"]
    assert (allocation["name"], allocation["deviceIDs"]) == ("asks", [mounted[0].rpartition("/")[2]])
    assert cluster.get("poddevice", "asks")
    # every resource that is there, and whoever answers for it
    output = cluster.release.test()
    assert re.search(rf"ok .*{re.escape(VENDOR_RESOURCE.replace('/', '.'))} .*Ready", output), output


def test_a_pod_can_open_the_device_file_of_a_built_in_plugin(cluster: ChartCluster, ran_on: RanOn) -> None:
    """The agent sees the host's /dev from its own pod, without a right to open anything in it.

    The ports speak HTTPS with the certificate that Helm makes: Helm waits until the probes pass.
    """
    file = device_files()[0]
    plugin = {"resourceName": FILE_RESOURCE, "groups": [{"paths": [{"path": file.path}]}]}
    by_token = {"metrics": {"authentication": "token"}, "networkPolicies": {"enabled": True}}
    cluster.release.install(cluster.values(agents={"config": {"plugins": {"generic": [plugin]}}}, **by_token))
    cluster.wait_capacity(FILE_RESOURCE, 1)
    ran_on(cluster.described)
    cluster.run(user("opens", {FILE_RESOURCE: 1}, "-open", file.path))
    assert cluster.report_of("opens")["opened"][file.path]["read"] == "ok"
    cluster.run(user("does-not", {}, "-number", file.number))
    (opened,) = cluster.report_of("does-not")["opened"].values()
    assert opened["read"] != "ok", "this machine's containers may open that device without being given it"
