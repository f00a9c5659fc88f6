/* Calls about memory: its size and its errors. */
#include <string.h>

#include "gate.h"

/* A GPU instance has no memory in use; compute instances share its memory. */
static nvmlMemory_v2_t memory_of(const struct call *call) {
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    if (call->compute != NULL) {
        memory.total = memory.free = call->gpu->profiles[call->instance->profile].info.memorySizeMB << 20;
        return memory;
    }
    memory.total = (unsigned long long)call->gpu->memory;
    memory.reserved = (unsigned long long)call->gpu->reserved;
    memory.used = (unsigned long long)call->gpu->used;
    unsigned long long taken = memory.reserved + memory.used;
    memory.free = taken < memory.total ? memory.total - taken : 0;
    return memory;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct call call = enter_any_device(__func__, device);
    WANTED(call, memory);
    if (IS_FINE(call)) {
        /* the first version counts the driver's reserved memory as used */
        nvmlMemory_v2_t all = memory_of(&call);
        *memory = (nvmlMemory_t){.total = all.total, .free = all.free, .used = all.used + all.reserved};
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct call call = enter_any_device(__func__, device);
    WANTED(call, memory);
    CHECK(call, memory->version == NVML_MEMORY_V2, NVML_ERROR_FUNCTION_NOT_FOUND);
    if (IS_FINE(call)) *memory = memory_of(&call);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct call call = enter_device(__func__, device);
    WANTED(call, current);
    WANTED(call, pending);
    CHECK(call, call.gpu->ecc != UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) *current = *pending = (unsigned)call.gpu->ecc;
    return leave(&call);
}

static unsigned long long ecc_errors(const struct gpu *gpu, unsigned is_uncorrected, unsigned is_aggregate) {
    long long errors = is_uncorrected ? (is_aggregate ? gpu->uncorrected_aggregate : gpu->uncorrected_volatile)
                                      : (is_aggregate ? gpu->corrected_aggregate : gpu->corrected_volatile);
    return (unsigned long long)errors;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                                unsigned long long *count) {
    struct call call = enter_device(__func__, device);
    WANTED(call, count);
    CHECK(call, type < 2 && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, call.gpu->ecc == ENABLED, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) *count = ecc_errors(call.gpu, type, counter);
    return leave(&call);
}

/* All errors of ours are in DRAM. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned counter,
                                                    unsigned location, unsigned long long *count) {
    struct call call = enter_device(__func__, device);
    WANTED(call, count);
    CHECK(call, type < 2 && counter < 2 && location < NVML_MEMORY_LOCATION_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, call.gpu->ecc == ENABLED, NVML_ERROR_NOT_SUPPORTED);
    /* from the A100 on there are these two kinds */
    CHECK(call, call.gpu->architecture < 7 || location == NVML_MEMORY_LOCATION_DRAM || location == NVML_MEMORY_LOCATION_SRAM,
          NVML_ERROR_NOT_SUPPORTED);
    /* 0 is volatile: counted for each instance in MIG mode, not for the GPU */
    CHECK(call, counter != 0 || call.gpu->mig != ENABLED, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) *count = location == NVML_MEMORY_LOCATION_DRAM ? ecc_errors(call.gpu, type, counter) : 0;
    return leave(&call);
}

static nvmlReturn_t retired_pages(const char *function, nvmlDevice_t device, unsigned cause, unsigned *count,
                                  unsigned long long *addresses, unsigned long long *times) {
    struct call call = enter_device(function, device);
    WANTED(call, count);
    CHECK(call, cause < 2, NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) {
        unsigned room = addresses == NULL ? 0 : *count;
        *count = (unsigned)(cause == 0 ? call.gpu->retired_single : call.gpu->retired_double);
        CHECK(call, *count <= room, NVML_ERROR_INSUFFICIENT_SIZE);
        for (unsigned i = 0; IS_FINE(call) && i < *count; i++) {
            addresses[i] = 0x1000ULL * (i + 1) + 0x100000ULL * cause;
            if (times != NULL) times[i] = 1700000000000000ULL + i;
        }
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              unsigned long long *addresses) {
    return retired_pages(__func__, device, cause, count, addresses, NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                                 unsigned long long *addresses, unsigned long long *times) {
    return retired_pages(__func__, device, cause, count, addresses, times);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *is_pending) {
    struct call call = enter_device(__func__, device);
    WANTED(call, is_pending);
    if (IS_FINE(call)) *is_pending = (unsigned)call.gpu->retired_pending;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *is_pending, unsigned *has_failed) {
    struct call call = enter_device(__func__, device);
    CHECK(call, corrected && uncorrected && is_pending && has_failed, NVML_ERROR_INVALID_ARGUMENT);
    if (IS_FINE(call)) {
        *corrected = (unsigned)call.gpu->remapped_corrected;
        *uncorrected = (unsigned)call.gpu->remapped_uncorrected;
        *is_pending = (unsigned)call.gpu->remap_pending;
        *has_failed = (unsigned)call.gpu->remap_failed;
    }
    return leave(&call);
}

/* Number of banks by spare rows: all rows, except in banks that lost one. */
EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *banks) {
    struct call call = enter_device(__func__, device);
    WANTED(call, banks);
    if (IS_FINE(call)) {
        unsigned remapped = (unsigned)(call.gpu->remapped_corrected + call.gpu->remapped_uncorrected);
        unsigned all = 2560;
        *banks = (nvmlRowRemapperHistogramValues_t){.max = remapped < all ? all - remapped : 0, .high = remapped};
    }
    return leave(&call);
}
