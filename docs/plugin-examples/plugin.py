"""A device plugin with two devices, each of which is /dev/null. Run: python plugin.py [DIRECTORY]"""

import os
import sys
import time
from concurrent import futures

import grpc
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

DEVICES = {"null-0": "/dev/null", "null-1": "/dev/null"}


class Plugin(api_pb2_grpc.DevicePluginServicer):
    def GetDevicePluginOptions(self, request, context):
        return api_pb2.DevicePluginOptions()

    def ListAndWatch(self, request, context):
        sent = None
        while context.is_active():
            health = {name: "Healthy" if os.path.exists(path) else "Unhealthy" for name, path in DEVICES.items()}
            if health != sent:  # send the whole list again whenever a device changes
                yield api_pb2.ListAndWatchResponse(devices=[{"ID": i, "health": h} for i, h in health.items()])
            sent = health
            time.sleep(1)

    def Allocate(self, request, context):
        response = api_pb2.AllocateResponse()
        for container in request.container_requests:  # one response for each container
            files = response.container_responses.add().devices
            for path in {DEVICES[name] for name in container.devices_ids}:
                files.add(host_path=path, container_path="/dev/example", permissions="rw")
        return response


def serve(endpoint):
    server = grpc.server(futures.ThreadPoolExecutor(8))
    api_pb2_grpc.add_DevicePluginServicer_to_server(Plugin(), server)
    server.add_insecure_port(f"unix:{endpoint}")
    server.start()
    return server


def register(endpoint):
    options = [("grpc.default_authority", "localhost"), ("grpc.max_reconnect_backoff_ms", 1000)]
    with grpc.insecure_channel("unix:kubelet.sock", options) as kubelet:
        request = api_pb2.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name="example.com/null")
        api_pb2_grpc.RegistrationStub(kubelet).Register(request, timeout=60, wait_for_ready=True)


os.chdir(sys.argv[1] if len(sys.argv) > 1 else "/var/lib/kubelet/device-plugins")
while True:
    server = serve("example.sock")
    try:
        register("example.sock")
        while os.path.exists("example.sock"):  # a kubelet that starts removes the socket
            time.sleep(1)
    except grpc.RpcError as error:
        print("not registered:", error.details(), flush=True)
    server.stop(None).wait()
