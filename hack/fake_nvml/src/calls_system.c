/* Calls about the machine: versions, number of GPUs, and their handles. */
#include <stdio.h>
#include <string.h>

#include "gate.h"

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    struct call call = enter(__func__);
    WANTED(call, version);
    if (IS_FINE(call)) call.result = copy_text(machine.driver, version, length);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    struct call call = enter(__func__);
    WANTED(call, version);
    if (IS_FINE(call)) call.result = copy_text(machine.nvml, version, length);
    return leave(&call);
}

static nvmlReturn_t cuda_version(const char *function, int *version) {
    struct call call = enter(function);
    WANTED(call, version);
    if (IS_FINE(call)) *version = (int)machine.cuda;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return cuda_version(__func__, version); }
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_version(__func__, version); }

static nvmlReturn_t count_devices(const char *function, unsigned *count) {
    struct call call = enter(function);
    WANTED(call, count);
    if (IS_FINE(call)) *count = (unsigned)listed_count;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return count_devices(__func__, count); }
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { return count_devices(__func__, count); }

/* Return the handle of a slot, unless a fault is set for this call about this GPU. */
static void hand_out(struct call *call, int slot, nvmlDevice_t *device) {
    call->slot = slot;
    call->result = is_usable(slot) ? ordered_fault(call) : NVML_ERROR_GPU_IS_LOST;
    if (IS_FINE(*call)) *device = &machine.gpus[slot];
}

static nvmlReturn_t by_index(const char *function, unsigned index, nvmlDevice_t *device) {
    struct call call = enter(function);
    WANTED(call, device);
    CHECK(call, index < (unsigned)listed_count, NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) hand_out(&call, listed[index], device);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return by_index(__func__, index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    return by_index(__func__, index, device);
}

static void find(struct call *call, bool (*matches)(const struct gpu *, const char *), const char *key,
                 nvmlDevice_t *device) {
    for (int i = 0; i < listed_count; i++) {
        if (matches(&machine.gpus[listed[i]], key)) return hand_out(call, listed[i], device);
    }
    call->result = NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct gpu *gpu, const char *uuid) { return strcmp(gpu->uuid, uuid) == 0; }
static bool has_serial(const struct gpu *gpu, const char *serial) { return strcmp(gpu->serial, serial) == 0; }

static bool has_pci(const struct gpu *gpu, const char *written) {
    unsigned one[3] = {0}, other[3] = {0};
    if (sscanf(gpu->pci, "%x:%x:%x", &one[0], &one[1], &one[2]) != 3) return false;
    /* the domain may be left out */
    if (sscanf(written, "%x:%x:%x", &other[0], &other[1], &other[2]) != 3 &&
        sscanf(written, "%x:%x", &other[1], &other[2]) != 2)
        return false;
    return one[1] == other[1] && one[2] == other[2] && (one[0] == other[0] || strchr(written, ':') == strrchr(written, ':'));
}

static nvmlReturn_t by_key(const char *function, bool (*matches)(const struct gpu *, const char *), const char *key,
                           nvmlDevice_t *device) {
    struct call call = enter(function);
    WANTED(call, key);
    WANTED(call, device);
    if (IS_FINE(call)) find(&call, matches, key, device);
    return leave(&call);
}

static struct compute *mig_device(struct gpu *gpu, const char *uuid) {
    FOR_EACH_COMPUTE(gpu, instance, compute) {
        if (compute->slices != 0 && strcmp(compute->uuid, uuid) == 0) return compute;
    }
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    struct call call = enter(__func__);
    WANTED(call, uuid);
    WANTED(call, device);
    if (IS_FINE(call)) find(&call, has_uuid, uuid, device);
    for (int i = 0; call.result == NVML_ERROR_NOT_FOUND && i < listed_count; i++) {
        struct compute *found = mig_device(&machine.gpus[listed[i]], uuid);
        if (found == NULL) continue;
        hand_out(&call, listed[i], device);
        if (IS_FINE(call)) *device = (nvmlDevice_t)found;
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return by_key(__func__, has_serial, serial, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci, nvmlDevice_t *device) {
    return by_key(__func__, has_pci, pci, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device) {
    return by_key(__func__, has_pci, pci, device);
}
