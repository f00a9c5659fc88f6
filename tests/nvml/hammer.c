/* Calls everything of the library from several threads while its control file is written: for the sanitizers of the compiler.
 *
 * Usage: hammer SCRIPT. The lines of SCRIPT go into the control file (NODEDEVICE_FAKE_NVML_CONTROL) one after the other, some
 * of them after the file was emptied; the threads get their turn every few lines. It prints how many GPUs were asked. The exit
 * status is 0 when it came to the end; the sanitizers report what is wrong.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "nvml.h"

enum { THREADS = 3, LINKS = 4, MIG_PLACEMENTS = 8 };

nvmlReturn_t nvmlInitWithFlags(unsigned flags);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long *cpus);
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long *nodes, unsigned scope);
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor);
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                          unsigned long long *addresses, unsigned long long *times);
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter, unsigned long long *count);
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned number, unsigned *is_active);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number, nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values);
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned level, unsigned *count, nvmlDevice_t *devices);
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned *level);
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned index, unsigned *status);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig_device);
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id);
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes);
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned index, nvmlGpuInstanceProfileInfo_v2_t *info);
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                           nvmlInstancePlacement_t *placements, unsigned *count);
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *found);
nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info);
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set);
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set);
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms);

static atomic_bool is_over;
static atomic_int rounds, asked;

static void ask_links(nvmlDevice_t device) {
    nvmlFieldValue_t field = {.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT};
    nvmlPciInfo_t pci;
    unsigned number;
    nvmlDeviceGetFieldValues(device, 1, &field);
    for (unsigned link = 0; link < LINKS; link++) {
        nvmlDeviceGetNvLinkState(device, link * 12, &number);
        nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &pci);
    }
}

static void ask_mig_device(nvmlDevice_t device) {
    nvmlDevice_t gpu;
    nvmlDeviceAttributes_t attributes;
    nvmlGpuInstance_t instance;
    nvmlGpuInstanceInfo_t info;
    nvmlMemory_t memory;
    char text[100];
    unsigned id;
    nvmlDeviceGetName(device, text, sizeof text);
    nvmlDeviceGetUUID(device, text, sizeof text);
    nvmlDeviceGetMemoryInfo(device, &memory);
    nvmlDeviceGetAttributes_v2(device, &attributes);
    if (nvmlDeviceGetGpuInstanceId(device, &id) != NVML_SUCCESS) return;
    if (nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &gpu) != NVML_SUCCESS) return;
    if (nvmlDeviceGetGpuInstanceById(gpu, id, &instance) == NVML_SUCCESS) nvmlGpuInstanceGetInfo(instance, &info);
}

static void ask_mig(nvmlDevice_t device) {
    nvmlGpuInstanceProfileInfo_v2_t profile = {.version = NVML_GPU_INSTANCE_PROFILE_INFO_V2};
    nvmlInstancePlacement_t placements[MIG_PLACEMENTS];
    nvmlDevice_t mig_device;
    unsigned count = 0;
    nvmlDeviceGetMaxMigDeviceCount(device, &count);
    for (unsigned index = 0; index < count; index++) {
        if (nvmlDeviceGetMigDeviceHandleByIndex(device, index, &mig_device) == NVML_SUCCESS) ask_mig_device(mig_device);
    }
    for (unsigned index = 0; index < NVML_GPU_INSTANCE_PROFILE_COUNT; index++) {
        if (nvmlDeviceGetGpuInstanceProfileInfoV(device, index, &profile) == NVML_SUCCESS)
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile.id, placements, &count);
    }
}

static void ask_gpu(nvmlDevice_t device, nvmlDevice_t other) {
    char text[100];
    unsigned number;
    int major, minor;
    unsigned long words[4];
    unsigned long long long_number, addresses[70], times[70];
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory2 = {.version = NVML_MEMORY_V2};
    nvmlPciInfo_t pci;
    nvmlDevice_t devices[4];
    asked++;
    if (nvmlDeviceGetUUID(device, text, sizeof text) == NVML_SUCCESS) nvmlDeviceGetHandleByUUID(text, &devices[0]);
    nvmlDeviceGetName(device, text, 5);
    nvmlDeviceGetIndex(device, &number);
    nvmlDeviceGetMemoryInfo(device, &memory);
    nvmlDeviceGetMemoryInfo_v2(device, &memory2);
    if (nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS) nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &devices[0]);
    nvmlDeviceGetCpuAffinity(device, 4, words);
    nvmlDeviceGetMemoryAffinity(device, 1, words, 0);
    nvmlDeviceGetCudaComputeCapability(device, &major, &minor);
    number = 70;
    nvmlDeviceGetRetiredPages_v2(device, 1, &number, addresses, times);
    unsigned long long address, time;
    number = 1; /* too little room for most */
    nvmlDeviceGetRetiredPages_v2(device, 1, &number, &address, &time);
    nvmlDeviceGetTotalEccErrors(device, 1, 0, &long_number);
    number = 4;
    nvmlDeviceGetTopologyNearestGpus(device, NVML_TOPOLOGY_NODE, &number, devices);
    nvmlDeviceGetTopologyCommonAncestor(device, other, &number);
    nvmlDeviceGetP2PStatus(device, other, NVML_P2P_CAPS_INDEX_NVLINK, &number);
    ask_links(device);
    ask_mig(device);
}

static void ask_all(nvmlEventSet_t set) {
    nvmlDevice_t device = NULL, before = NULL;
    nvmlEventData_t event;
    char version[80];
    unsigned count = 0;
    nvmlSystemGetDriverVersion(version, sizeof version);
    nvmlDeviceGetCount_v2(&count);
    for (unsigned index = 0; index < count; index++) {
        if (nvmlDeviceGetHandleByIndex_v2(index, &device) != NVML_SUCCESS) continue;
        nvmlDeviceRegisterEvents(device, NVML_EVENT_XID_CRITICAL_ERROR, set);
        ask_gpu(device, before);
        before = device;
    }
    for (int fetched = 0; fetched < 200; fetched++) {
        if (nvmlEventSetWait_v2(set, &event, 1) != NVML_SUCCESS) break;
        ask_gpu(event.device, event.device);
    }
}

static void *hammer(void *nothing) {
    while (!is_over) {
        nvmlEventSet_t set = NULL;
        nvmlInitWithFlags(0);
        nvmlEventSetCreate(&set);
        ask_all(set);
        nvmlEventSetFree(set);
        nvmlShutdown();
        rounds++;
    }
    return nothing;
}

static int write_control(const char *script) {
    char line[8192];
    FILE *from = fopen(script, "rb"), *to = fopen(getenv("NODEDEVICE_FAKE_NVML_CONTROL"), "ab");
    if (from == NULL || to == NULL) return 1;
    for (int number = 1; fgets(line, sizeof line, from) != NULL; number++) {
        if (number % 50 == 0) to = freopen(NULL, "wb", to);
        if (to == NULL || fputs(line, to) < 0 || fflush(to) != 0) return 1;
        for (int before = rounds; number % 10 == 0 && rounds == before;) sched_yield();
    }
    fclose(to);
    fclose(from);
    return 0;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    if (count != 2) return 2;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, hammer, NULL) != 0) return 1;
    }
    int status = write_control(arguments[1]);
    is_over = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d\n", asked);
    return status;
}
