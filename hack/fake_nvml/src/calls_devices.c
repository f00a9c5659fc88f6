/* Calls about one GPU: identity, location, state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "pci.h"

#define TEXT_CALL(symbol, field)                                                                                        \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, char *text, unsigned length) {                                      \
        struct call call = enter_device(__func__, device);                                                              \
        WANTED(call, text);                                                                                             \
        if (IS_FINE(call)) call.result = copy_text(call.gpu->field, text, length);                                      \
        return leave(&call);                                                                                            \
    }

#define NUMBER_CALL(symbol, field)                                                                                      \
    EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned *number) {                                                 \
        struct call call = enter_device(__func__, device);                                                              \
        WANTED(call, number);                                                                                           \
        if (IS_FINE(call)) *number = (unsigned)call.gpu->field;                                                         \
        return leave(&call);                                                                                            \
    }

TEXT_CALL(nvmlDeviceGetSerial, serial)
TEXT_CALL(nvmlDeviceGetBoardPartNumber, part_number)
TEXT_CALL(nvmlDeviceGetVbiosVersion, vbios)

NUMBER_CALL(nvmlDeviceGetMinorNumber, minor)
NUMBER_CALL(nvmlDeviceGetArchitecture, architecture)
NUMBER_CALL(nvmlDeviceGetBrand, brand)
NUMBER_CALL(nvmlDeviceGetPersistenceMode, persistence)
NUMBER_CALL(nvmlDeviceGetPowerUsage, power_mw)
NUMBER_CALL(nvmlDeviceGetPowerManagementLimit, power_limit_mw)

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules) {
    struct call call = enter_device(__func__, device);
    WANTED(call, millijoules);
    if (IS_FINE(call)) *millijoules = (unsigned long long)call.gpu->energy_mj;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length) {
    struct call call = enter_any_device(__func__, device);
    WANTED(call, text);
    if (IS_FINE(call)) call.result = copy_text(call.compute == NULL ? call.gpu->uuid : call.compute->uuid, text, length);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length) {
    struct call call = enter_any_device(__func__, device);
    char name[sizeof call.gpu->name + 64];
    WANTED(call, text);
    if (!IS_FINE(call)) return leave(&call);
    snprintf(name, sizeof name, "%s", call.gpu->name);
    if (call.compute != NULL) mig_name(&call, name + strlen(name), sizeof name - strlen(name));
    call.result = copy_text(name, text, length);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    struct call call = enter_any_device(__func__, device);
    WANTED(call, index);
    if (IS_FINE(call) && call.compute != NULL) *index = call.compute->index;
    for (int i = 0; IS_FINE(call) && call.compute == NULL && i < listed_count; i++) {
        if (listed[i] == call.slot) *index = (unsigned)i;
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    struct call call = enter_device(__func__, device);
    WANTED(call, major);
    WANTED(call, minor);
    if (IS_FINE(call) && sscanf(call.gpu->compute, "%d.%d", major, minor) != 2) call.result = NVML_ERROR_UNKNOWN;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned *id) {
    struct call call = enter_device(__func__, device);
    nvmlPciInfo_t pci;
    WANTED(call, id);
    if (IS_FINE(call)) call.result = read_pci(call.gpu->pci, &pci);
    if (IS_FINE(call)) *id = pci.domain << 16 | pci.bus << 8 | pci.device;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *is_one) {
    struct call call = enter_device(__func__, device);
    WANTED(call, is_one);
    if (IS_FINE(call)) *is_one = 0;
    return leave(&call);
}

static nvmlReturn_t pci_info(const char *function, nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct call call = enter_device(function, device);
    WANTED(call, pci);
    if (IS_FINE(call)) call.result = read_pci(call.gpu->pci, pci);
    if (IS_FINE(call)) {
        pci->pciDeviceId = (unsigned)call.gpu->pci_device;
        pci->pciSubSystemId = (unsigned)call.gpu->pci_subsystem;
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(__func__, device, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(__func__, device, pci);
}

/* The NUMA node of a GPU's own memory; not supported on a machine with PCIe (see nvmlDeviceGetMemoryAffinity). */
EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, int *node) {
    struct call call = enter_device(__func__, device);
    WANTED(call, node);
    if (IS_FINE(call)) call.result = NVML_ERROR_NOT_SUPPORTED;
    return leave(&call);
}

static void set_bit(unsigned long *words, unsigned count, long bit) {
    unsigned long width = 8 * sizeof *words;
    if (bit >= 0 && (unsigned long)bit / width < count) words[(unsigned long)bit / width] |= 1UL << (unsigned long)bit % width;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long *nodes, unsigned scope) {
    struct call call = enter_device(__func__, device);
    WANTED(call, nodes);
    CHECK(call, count > 0 && scope <= NVML_AFFINITY_SCOPE_SOCKET, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, call.gpu->numa >= 0, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) {
        memset(nodes, 0, count * sizeof *nodes);
        set_bit(nodes, count, (long)call.gpu->numa);
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long *cpus) {
    struct call call = enter_device(__func__, device);
    WANTED(call, cpus);
    CHECK(call, count > 0, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, *call.gpu->cpus != '\0', NVML_ERROR_NOT_SUPPORTED);
    if (!IS_FINE(call)) return leave(&call);
    memset(cpus, 0, count * sizeof *cpus);
    /* a list such as 0-51,104-155 */
    for (char *at = call.gpu->cpus; *at != '\0';) {
        long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        for (long cpu = first; cpu <= last && cpu < 65536; cpu++) set_bit(cpus, count, cpu);
        at += *at == ',' ? 1 : strlen(at);
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    struct call call = enter_device(__func__, device);
    WANTED(call, celsius);
    CHECK(call, sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) *celsius = (unsigned)call.gpu->temperature;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    struct call call = enter_device(__func__, device);
    WANTED(call, rates);
    CHECK(call, call.gpu->mig != ENABLED, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call))
        *rates = (nvmlUtilization_t){(unsigned)call.gpu->utilization, (unsigned)call.gpu->memory_utilization};
    return leave(&call);
}

/* The recovery action that an Xid has requested so far. */
static void take_next_action(struct gpu *gpu) {
    if (gpu->next_action_ms == 0 || gpu->next_action_ms > now_ms()) return;
    gpu->recovery_action = gpu->next_action;
    gpu->next_action_ms = 0;
}

/* A field of the description: statements do not change it. */
static nvmlReturn_t described_field(const struct gpu *gpu, nvmlFieldValue_t *value) {
    const struct field *field = value->fieldId < MAX_FIELDS ? &gpu->fields[value->fieldId] : NULL;
    if (field == NULL || field->state == NOT_DESCRIBED) return NVML_ERROR_NOT_SUPPORTED;
    if (field->state == INVALID) return NVML_ERROR_INVALID_ARGUMENT;
    bool is_small = field->value >= 0 && field->value <= 0xffffffffLL;
    value->valueType = is_small ? NVML_VALUE_TYPE_UNSIGNED_INT : NVML_VALUE_TYPE_SIGNED_LONG_LONG;
    value->value.sllVal = field->value;
    return NVML_SUCCESS;
}

static nvmlReturn_t field_value(struct gpu *gpu, nvmlFieldValue_t *found) {
    unsigned *value = &found->value.uiVal;
    take_next_action(gpu);
    switch (found->fieldId) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        *value = (unsigned)gpu->nvlink_count;
        return gpu->nvlink_count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
        *value = gpu->recovery_action < 0 ? 0 : (unsigned)gpu->recovery_action;
        return gpu->recovery_action < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
    default:
        return described_field(gpu, found);
    }
}

/* Each value has its own result. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct call call = enter_device(__func__, device);
    WANTED(call, values);
    for (int i = 0; IS_FINE(call) && i < count; i++) {
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.ullVal = 0;
        values[i].nvmlReturn = field_value(call.gpu, &values[i]);
    }
    return leave(&call);
}
