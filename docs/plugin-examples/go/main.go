// A device plugin with two devices, each of which is /dev/null. Run: go run . [DIRECTORY]
package main

import (
	"context"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
}

func (plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	err := stream.Send(&api.ListAndWatchResponse{Devices: []*api.Device{
		{ID: "null-0", Health: api.Healthy}, {ID: "null-1", Health: api.Healthy}}})
	<-stream.Context().Done() // send the whole list again whenever a device changes
	return err
}

func (plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	file := &api.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/example", Permissions: "rw"}
	container := &api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{file}}
	response := &api.AllocateResponse{}
	for range request.ContainerRequests { // the DevicesIds of each are what the container gets
		response.ContainerResponses = append(response.ContainerResponses, container)
	}
	return response, nil
}

func must(err error) {
	if err != nil {
		log.Fatal(err) // the DaemonSet starts the plugin again
	}
}

func main() {
	must(os.Chdir(append(os.Args, api.DevicePluginPath)[1]))
	retry := backoff.Config{BaseDelay: time.Second, MaxDelay: time.Second}
	kubelet, err := grpc.NewClient("unix:kubelet.sock", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}))
	must(err)
	server, endpoint := grpc.NewServer(), "example-go.sock"
	api.RegisterDevicePluginServer(server, plugin{})
	os.Remove(endpoint) // left by an earlier run
	for ; ; time.Sleep(time.Second) {
		if _, err := os.Stat(endpoint); err == nil {
			continue // a kubelet that starts removes the socket
		}
		listener, err := net.Listen("unix", endpoint)
		must(err)
		go server.Serve(listener)
		request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: "example.com/null-go"}
		_, err = api.NewRegistrationClient(kubelet).Register(context.Background(), request, grpc.WaitForReady(true))
		if err != nil {
			log.Print(err)
			listener.Close() // removes the socket, so the next turn serves and registers again
		}
	}
}
