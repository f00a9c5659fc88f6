/* Calls about connections of GPUs: NVLink, PCIe, processors. */
#include <string.h>

#include "gate.h"
#include "pci.h"

static const struct nvlink *find_link(struct call *call, unsigned number) {
    CHECK(*call, call->gpu->nvlink_count > 0, NVML_ERROR_NOT_SUPPORTED);
    CHECK(*call, number < (unsigned)call->gpu->nvlink_count, NVML_ERROR_INVALID_ARGUMENT);
    return IS_FINE(*call) ? &call->gpu->nvlinks[number] : NULL;
}

static bool carries(const struct nvlink *link) { return link->end != NOT_CONNECTED && link->is_up; }

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned number, unsigned *is_active) {
    struct call call = enter_device(__func__, device);
    WANTED(call, is_active);
    const struct nvlink *link = find_link(&call, number);
    if (link != NULL) *is_active = carries(link);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned number, unsigned *version) {
    struct call call = enter_device(__func__, device);
    WANTED(call, version);
    if (find_link(&call, number) != NULL) *version = (unsigned)call.gpu->nvlink_version;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned number, unsigned capability,
                                                  unsigned *has_it) {
    struct call call = enter_device(__func__, device);
    WANTED(call, has_it);
    CHECK(call, capability < NVML_NVLINK_CAP_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    const struct nvlink *link = find_link(&call, number);
    /* all but the fourth, which is a bridge between two cards for SLI */
    if (link != NULL) *has_it = carries(link) && capability != 4;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned number, unsigned *type) {
    struct call call = enter_device(__func__, device);
    WANTED(call, type);
    const struct nvlink *link = find_link(&call, number);
    CHECK(call, carries(link), NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) *type = link->end == TO_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return leave(&call);
}

static nvmlReturn_t remote_pci(const char *function, nvmlDevice_t device, unsigned number, nvmlPciInfo_t *pci) {
    struct call call = enter_device(function, device);
    WANTED(call, pci);
    const struct nvlink *link = find_link(&call, number);
    CHECK(call, carries(link), NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call))
        call.result = read_pci(link->end == TO_SWITCH ? link->switch_pci : machine.gpus[link->peer].pci, pci);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned number, nvmlPciInfo_t *pci) {
    return remote_pci(__func__, device, number, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number, nvmlPciInfo_t *pci) {
    return remote_pci(__func__, device, number, pci);
}

static unsigned common_ancestor(int one, int other) {
    const struct gpu *a = &machine.gpus[one], *b = &machine.gpus[other];
    if (one == other) return NVML_TOPOLOGY_INTERNAL;
    if (a->numa != b->numa) return NVML_TOPOLOGY_SYSTEM;
    if (a->host_bridge != b->host_bridge) return NVML_TOPOLOGY_NODE;
    return a->pcie_switch == b->pcie_switch ? NVML_TOPOLOGY_SINGLE : NVML_TOPOLOGY_HOSTBRIDGE;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned *level) {
    struct call call = enter_device(__func__, device);
    int slot;
    WANTED(call, level);
    if (IS_FINE(call)) call.result = device_state(other, &slot);
    if (IS_FINE(call)) *level = common_ancestor(call.slot, slot);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned level, unsigned *count,
                                                     nvmlDevice_t *devices) {
    struct call call = enter_device(__func__, device);
    WANTED(call, count);
    CHECK(call, listed_count > 1, NVML_ERROR_INVALID_ARGUMENT);
    unsigned found = 0;
    for (int i = 0; IS_FINE(call) && i < listed_count; i++) {
        if (listed[i] == call.slot || !is_usable(listed[i]) || common_ancestor(call.slot, listed[i]) != level) continue;
        if (devices != NULL && found < *count) devices[found] = &machine.gpus[listed[i]];
        found++;
    }
    if (IS_FINE(call)) *count = devices != NULL && *count < found ? *count : found;
    return leave(&call);
}

static bool are_linked(int one, int other) {
    bool one_at_switch = false, other_at_switch = false;
    for (int i = 0; i < NVML_NVLINK_MAX_LINKS; i++) {
        const struct nvlink *a = &machine.gpus[one].nvlinks[i], *b = &machine.gpus[other].nvlinks[i];
        if (carries(a) && a->end == TO_GPU && a->peer == other) return true;
        one_at_switch |= carries(a) && a->end == TO_SWITCH;
        other_at_switch |= carries(b) && b->end == TO_SWITCH;
    }
    return one_at_switch && other_at_switch;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned index, unsigned *status) {
    struct call call = enter_device(__func__, device);
    int slot = ANY_GPU;
    WANTED(call, status);
    if (IS_FINE(call)) call.result = device_state(other, &slot);
    CHECK(call, index < NVML_P2P_CAPS_INDEX_UNKNOWN, NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) {
        bool is_near = index != NVML_P2P_CAPS_INDEX_NVLINK && common_ancestor(call.slot, slot) <= NVML_TOPOLOGY_HOSTBRIDGE;
        *status = (slot != call.slot && are_linked(call.slot, slot)) || is_near ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    }
    return leave(&call);
}

/* The fabric of GPUs on NVSwitches is complete unless stated otherwise; drivers report it from the A100 on. */
enum { AMPERE = 7 };

static unsigned fabric_state(const struct gpu *gpu) {
    if (gpu->fabric_state >= 0) return (unsigned)gpu->fabric_state;
    for (long long i = 0; i < gpu->nvlink_count && gpu->architecture >= AMPERE; i++) {
        if (gpu->nvlinks[i].end == TO_SWITCH) return NVML_GPU_FABRIC_STATE_COMPLETED;
    }
    return NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
}

static nvmlGpuFabricInfo_t fabric_info(const struct gpu *gpu) {
    return (nvmlGpuFabricInfo_t){.status = (unsigned)gpu->fabric_status, .state = fabric_state(gpu)};
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    struct call call = enter_device(__func__, device);
    WANTED(call, info);
    if (IS_FINE(call)) *info = fabric_info(call.gpu);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info) {
    struct call call = enter_device(__func__, device);
    WANTED(call, info);
    CHECK(call, info->version == NVML_GPU_FABRIC_INFO_V2 || info->version == NVML_GPU_FABRIC_INFO_V3,
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (!IS_FINE(call)) return leave(&call);
    info->first = fabric_info(call.gpu);
    info->healthMask = 0;
    bool is_known = info->first.state != NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
    if (info->version == NVML_GPU_FABRIC_INFO_V3)
        info->healthSummary = is_known ? (unsigned char)call.gpu->fabric_health : 0;
    return leave(&call);
}
