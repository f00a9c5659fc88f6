"""Where input of others enters, and the scenario by which its turns are measured; or why none is.

`tests/unit/test_entrances.py` finds what enters: methods of services, calls of the container runtime, handlers of watches, readings
of the kubelet, calls to plugins whose answers come back, verbs of kube-scheduler, kinds that are watched. None is forgotten.
"""

from typing import Final

# by program, and by file and name: the scenarios, or a sentence
MEASURED: Final[dict[str, dict[str, tuple[str, ...] | str]]] = {
    "agent": {
        "configs/kept.py KeptConfigs": ("configurations_of_a_node",),
        "configs/watch.py ConfigWatch": "labels of one Node, which the API server bounds to 256 KiB",
        "deviceplugin/connection.py aclose": "nothing comes back",
        "deviceplugin/connection.py allocate": ("calls_of_a_plugin", "devices_of_a_pod"),
        "deviceplugin/connection.py ask": "an answer of 64 KiB at the most",
        "deviceplugin/connection.py decoded": ("lists_of_devices",),
        "deviceplugin/connection.py device_lists": (
            "lists_of_devices",
            "lists_of_physical_devices",
            "lists_of_built_in_plugins",
            "lists_for_the_kubelet",
            "names_of_a_node",
        ),
        "deviceplugin/connection.py open": ("names_of_a_node",),
        "deviceplugin/connection.py pre_start": ("calls_of_a_plugin",),
        "deviceplugin/connection.py preferred": ("calls_of_a_plugin", "devices_of_a_pod", "near_devices_of_a_pod"),
        "deviceplugin/connection.py sync_holdings": "an empty answer; the request is of built-in plugins alone",
        "dra/holders.py Holders": ("devices_of_claims",),
        "dra/observer.py DriverObserver": ("slices_of_drivers", "devices_that_are_offered_twice"),
        "kube/informer.py EventHandler": "what the handlers have in common",
        "kube/nodedevice.py NodeDeviceSync": ("cordons_of_a_resource",),
        "kube/pods.py PodWatch": ("pods_of_a_node", "devices_of_a_pod", "parts_of_a_pod", "near_devices_of_a_pod"),
        "kubelet/attribution_feed.py AttributionFeed": ("devices_given_out_by_the_kubelet",),
        "kubelet/observer.py Observer": ("devices_given_out_by_the_kubelet", "devices_that_are_offered_twice"),
        "kubelet/proxy_service.py Allocate": "one pod's devices, by the kubelet",
        "kubelet/proxy_service.py GetPreferredAllocation": "devices of one resource, by the kubelet",
        "kubelet/proxy_service.py PreStartContainer": "one pod's devices, by the kubelet",
        "lib/deviceplugin_server/server.py Allocate": "one pod's devices, of a built-in plugin",
        "lib/deviceplugin_server/server.py GetDevicePluginOptions": "nothing comes in",
        "lib/deviceplugin_server/server.py GetPreferredAllocation": "devices of a built-in plugin, 10,000 at the most",
        "lib/deviceplugin_server/server.py ListAndWatch": "nothing comes in",
        "lib/deviceplugin_server/server.py PreStartContainer": "one pod's devices, of a built-in plugin",
        "lib/deviceplugin_server/server.py Sync": "holdings of a built-in plugin, by the agent",
        "nri/session.py Configure": "a message of some words",
        "nri/session.py CreateContainer": ("containers_of_a_runtime", "environments_of_a_runtime"),
        "nri/session.py PostStartContainer": ("containers_of_a_runtime", "environments_of_a_runtime"),
        "nri/session.py RemoveContainer": ("containers_of_a_runtime", "environments_of_a_runtime"),
        "nri/session.py RemovePodSandbox": ("containers_of_a_runtime",),
        "nri/session.py RunPodSandbox": "ignored",
        "nri/session.py Shutdown": "an empty message",
        "nri/session.py StateChange": ("containers_of_a_runtime",),
        "nri/session.py StopContainer": ("containers_of_a_runtime", "environments_of_a_runtime"),
        "nri/session.py StopPodSandbox": "ignored",
        "nri/session.py Synchronize": ("containers_of_a_runtime", "environments_of_a_runtime"),
        "nri/session.py ValidateContainerAdjustment": ("containers_of_a_runtime", "environments_of_a_runtime"),
        "podresources/server.py Get": ("pod_resources_of_a_node",),
        "podresources/server.py GetAllocatableResources": ("pod_resources_of_a_node",),
        "podresources/server.py List": ("pod_resources_of_a_node",),
        "runtime/kubelet_checkpoint.py KubeletCheckpoint": "it takes nothing of pod resources",
        "runtime/kubelet_takeover.py KubeletTakeover": "whether the kubelet has answered, no more",
    },
    "operator": {
        "configs/controller.py refusing_leases": "Leases of agents, decoded as all kinds are",
        "kube/lists.py NODES": ("events_of_watches", "pages_of_lists", "a_node_of_many_objects"),
        "kube/lists.py NODE_DEVICES": ("events_of_watches", "pages_of_lists", "a_node_of_many_objects"),
        "kube/lists.py POD_DEVICES": ("events_of_watches", "pages_of_lists"),
        "shared_slices.py SHARED_SLICES": ("slices_of_no_node",),
    },
    "extender": {
        "extender/verbs.py bind": "one pod and one node: a plan of those that filter makes",
        "extender/verbs.py filter": ("requests_by_name", "requests_with_whole_nodes"),
        "extender/verbs.py preempt": ("preemptions",),
        "extender/verbs.py prioritize": ("requests_by_name",),
        "extender/stores.py NODE_PARTS": ("requests_by_name",),
        "extender/stores.py BOUND_PODS": ("preemptions",),
    },
}
