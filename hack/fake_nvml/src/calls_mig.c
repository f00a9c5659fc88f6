/* Calls about MIG: profiles of a GPU, existing instances, and the parents of a MIG device. */
#include <stdio.h>
#include <string.h>

#include "gate.h"

static unsigned instance_of(const struct call *call) { return (unsigned)(call->instance - call->gpu->instances); }
static unsigned compute_of(const struct call *call) { return (unsigned)(call->compute - call->instance->computes); }
static const struct profile *profile_of(const struct call *call) { return &call->gpu->profiles[call->instance->profile]; }

/* The name of a partial compute instance includes that of its GPU instance: 1c.3g.40gb. */
void mig_name(const struct call *call, char *name, size_t size) {
    const struct profile *profile = profile_of(call);
    char part[16] = "";
    if (call->compute->slices != profile->info.sliceCount) snprintf(part, sizeof part, "%uc.", call->compute->slices);
    snprintf(name, size, " MIG %s%s", part, profile->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct call call = enter_device(__func__, device);
    WANTED(call, current);
    WANTED(call, pending);
    CHECK(call, call.gpu->mig != UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    if (IS_FINE(call)) {
        *current = (unsigned)call.gpu->mig;
        *pending = call.gpu->mig_pending == UNSUPPORTED ? *current : (unsigned)call.gpu->mig_pending;
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    struct call call = enter_device(__func__, device);
    WANTED(call, count);
    if (IS_FINE(call)) *count = call.gpu->mig == ENABLED ? MAX_MIG_DEVICES : 0;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig_device) {
    struct call call = enter_device(__func__, device);
    WANTED(call, mig_device);
    CHECK(call, call.gpu->mig != UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    CHECK(call, call.gpu->mig == ENABLED, NVML_ERROR_NOT_FOUND);
    CHECK(call, index < MAX_MIG_DEVICES, NVML_ERROR_INVALID_ARGUMENT);
    if (!IS_FINE(call)) return leave(&call);
    call.result = NVML_ERROR_NOT_FOUND;
    FOR_EACH_COMPUTE(call.gpu, instance, compute) {
        if (compute->slices == 0 || compute->index != index) continue;
        *mig_device = (nvmlDevice_t)compute;
        call.result = NVML_SUCCESS;
    }
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_one) {
    struct call call = enter_any_device(__func__, device);
    WANTED(call, is_one);
    if (IS_FINE(call)) *is_one = call.compute != NULL;
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device) {
    struct call call = enter_compute(__func__, mig_device);
    WANTED(call, device);
    if (IS_FINE(call)) *device = call.gpu;
    return leave(&call);
}

/* A GPU has no instance's ID, whether it is in MIG mode or not. */
static struct call enter_mig_device(const char *function, nvmlDevice_t device) {
    struct call call = enter_any_device(function, device);
    CHECK(call, call.gpu->mig != UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    CHECK(call, call.compute != NULL, NVML_ERROR_INVALID_ARGUMENT);
    return call;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    struct call call = enter_mig_device(__func__, device);
    WANTED(call, id);
    if (IS_FINE(call)) *id = instance_of(&call);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    struct call call = enter_mig_device(__func__, device);
    WANTED(call, id);
    if (IS_FINE(call)) *id = compute_of(&call);
    return leave(&call);
}

static unsigned multiprocessors(const struct profile *profile, unsigned slices) {
    return profile->info.multiprocessorCount * slices / profile->info.sliceCount;
}

/* Engines other than multiprocessors are shared by the compute instances of an instance. */
static nvmlReturn_t attributes(const char *function, nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    struct call call = enter_any_device(function, device);
    WANTED(call, attributes);
    CHECK(call, call.compute != NULL, NVML_ERROR_NOT_SUPPORTED);
    if (!IS_FINE(call)) return leave(&call);
    const struct profile *profile = profile_of(&call);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = multiprocessors(profile, call.compute->slices),
        .sharedCopyEngineCount = profile->info.copyEngineCount,
        .sharedDecoderCount = profile->info.decoderCount,
        .sharedEncoderCount = profile->info.encoderCount,
        .sharedJpegCount = profile->info.jpegCount,
        .sharedOfaCount = profile->info.ofaCount,
        .gpuInstanceSliceCount = profile->info.sliceCount,
        .computeInstanceSliceCount = call.compute->slices,
        .memorySizeMB = profile->info.memorySizeMB,
    };
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *found) {
    return attributes(__func__, device, found);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *found) {
    return attributes(__func__, device, found);
}

/* -- profiles ---------------------------------------------------------------------------------------------------------- */

/* The GPU's profile of this number: its index among NVML's kinds of profiles, or its own ID. */
static const struct profile *find_profile(const struct gpu *gpu, unsigned number, bool by_id) {
    for (int i = 0; i < gpu->profile_count; i++) {
        if ((by_id ? gpu->profiles[i].info.id : gpu->profiles[i].index) == number) return &gpu->profiles[i];
    }
    return NULL;
}

static const struct profile *wanted_profile(struct call *call, unsigned number, bool by_id) {
    CHECK(*call, by_id || number < NVML_GPU_INSTANCE_PROFILE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(*call, call->gpu->mig != UNSUPPORTED && find_profile(call->gpu, number, by_id) != NULL, NVML_ERROR_NOT_SUPPORTED);
    return IS_FINE(*call) ? find_profile(call->gpu, number, by_id) : NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned index,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    struct call call = enter_device(__func__, device);
    WANTED(call, info);
    const struct profile *profile = wanted_profile(&call, index, false);
    if (profile != NULL) *info = profile->info;
    return leave(&call);
}

static nvmlReturn_t named_profile(const char *function, nvmlDevice_t device, unsigned number, bool by_id,
                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
    struct call call = enter_device(function, device);
    WANTED(call, info);
    CHECK(call, info->version == NVML_GPU_INSTANCE_PROFILE_INFO_V2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    const struct profile *profile = wanted_profile(&call, number, by_id);
    if (profile == NULL) return leave(&call);
    const nvmlGpuInstanceProfileInfo_t *known = &profile->info;
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        0,                      known->id,           known->isP2pSupported, known->sliceCount, known->instanceCount,
        known->multiprocessorCount, known->copyEngineCount, known->decoderCount, known->encoderCount, known->jpegCount,
        known->ofaCount,        known->memorySizeMB, .name = "",
    };
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned index,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info) {
    return named_profile(__func__, device, index, false, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned id,
                                                             nvmlGpuInstanceProfileInfo_v2_t *info) {
    return named_profile(__func__, device, id, true, info);
}

/* Without room in the array, only their number. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                  nvmlInstancePlacement_t *placements, unsigned *count) {
    struct call call = enter_device(__func__, device);
    WANTED(call, count);
    const struct profile *profile = wanted_profile(&call, id, true);
    if (profile == NULL) return leave(&call);
    *count = profile->placements;
    for (unsigned i = 0; placements != NULL && i < profile->placements; i++)
        placements[i] = (nvmlInstancePlacement_t){i * profile->size, profile->size};
    return leave(&call);
}

/* How many more of them fit, if no other kind is created. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned id, unsigned *count) {
    struct call call = enter_device(__func__, device);
    WANTED(call, count);
    const struct profile *profile = wanted_profile(&call, id, true);
    if (profile == NULL) return leave(&call);
    *count = room_for(call.gpu, profile);
    return leave(&call);
}

/* -- instances --------------------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *found) {
    struct call call = enter_device(__func__, device);
    WANTED(call, found);
    CHECK(call, call.gpu->mig == ENABLED, NVML_ERROR_NOT_SUPPORTED);
    CHECK(call, id < MAX_INSTANCES && call.gpu->instances[id].is_there, NVML_ERROR_NOT_FOUND);
    if (IS_FINE(call)) *found = &call.gpu->instances[id];
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    struct call call = enter_instance(__func__, instance);
    WANTED(call, info);
    if (!IS_FINE(call)) return leave(&call);
    const struct profile *profile = profile_of(&call);
    unsigned id = instance_of(&call);
    nvmlInstancePlacement_t placement = {instance_start(id, profile->size), profile->size};
    *info = (nvmlGpuInstanceInfo_t){call.gpu, id, profile->info.id, placement};
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                          nvmlComputeInstance_t *found) {
    struct call call = enter_instance(__func__, instance);
    WANTED(call, found);
    CHECK(call, id < MAX_COMPUTES && call.instance->computes[id].slices != 0, NVML_ERROR_NOT_FOUND);
    if (IS_FINE(call)) *found = &call.instance->computes[id];
    return leave(&call);
}

/* Slices of a compute instance by NVML's kinds of profiles, whose numbers are also the IDs; 0: unsupported. */
static const unsigned COMPUTE_SLICES[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {1, 2, 3, 4, 7, 0, 6};

static unsigned compute_profile(unsigned slices) {
    for (unsigned i = 0; i < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; i++) {
        if (COMPUTE_SLICES[i] == slices) return i;
    }
    return NVML_COMPUTE_INSTANCE_PROFILE_COUNT;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    struct call call = enter_compute(__func__, compute);
    WANTED(call, info);
    if (!IS_FINE(call)) return leave(&call);
    nvmlInstancePlacement_t placement = {call.compute->first_slice, call.compute->slices};
    unsigned profile = compute_profile(call.compute->slices);
    *info = (nvmlComputeInstanceInfo_t){call.gpu, call.instance, compute_of(&call), profile, placement};
    return leave(&call);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned index,
                                                                 unsigned engines, nvmlComputeInstanceProfileInfo_t *info) {
    struct call call = enter_instance(__func__, instance);
    WANTED(call, info);
    CHECK(call, index < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && engines == 0, NVML_ERROR_INVALID_ARGUMENT);
    CHECK(call, COMPUTE_SLICES[index] != 0 && COMPUTE_SLICES[index] <= profile_of(&call)->info.sliceCount,
          NVML_ERROR_NOT_SUPPORTED);
    if (!IS_FINE(call)) return leave(&call);
    const struct profile *profile = profile_of(&call);
    unsigned slices = COMPUTE_SLICES[index];
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = index,
        .sliceCount = slices,
        .instanceCount = profile->info.sliceCount / slices,
        .multiprocessorCount = multiprocessors(profile, slices),
        .sharedCopyEngineCount = profile->info.copyEngineCount,
        .sharedDecoderCount = profile->info.decoderCount,
        .sharedEncoderCount = profile->info.encoderCount,
        .sharedJpegCount = profile->info.jpegCount,
        .sharedOfaCount = profile->info.ofaCount,
    };
    return leave(&call);
}
