/* The part of NVML's binary interface that this library implements: only the layout of a caller's memory.
 *
 * Source: the public binding nvidia-ml-py (module pynvml), whose ctypes structures and buffer sizes state every
 * layout and number. Names are NVML's own, because they are the symbols that callers resolve.
 */
#ifndef FAKE_NVML_NVML_H
#define FAKE_NVML_NVML_H

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;
typedef struct event_set *nvmlEventSet_t;
typedef struct instance *nvmlGpuInstance_t;
typedef struct compute *nvmlComputeInstance_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 };

enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50,
};

enum {
    NVML_P2P_CAPS_INDEX_NVLINK = 2,
    NVML_P2P_CAPS_INDEX_UNKNOWN = 5,
    NVML_P2P_STATUS_OK = 0,
    NVML_P2P_STATUS_NOT_SUPPORTED = 5,
};

enum { NVML_NVLINK_DEVICE_TYPE_GPU = 0, NVML_NVLINK_DEVICE_TYPE_SWITCH = 2, NVML_NVLINK_CAP_COUNT = 6 };
enum { NVML_NVLINK_MAX_LINKS = 36 };

enum { NVML_DEVICE_ARCH_AMPERE = 7 };
enum { NVML_MEMORY_LOCATION_DRAM = 2, NVML_MEMORY_LOCATION_SRAM = 7, NVML_MEMORY_LOCATION_COUNT = 8 };
enum { NVML_AFFINITY_SCOPE_NODE = 0, NVML_AFFINITY_SCOPE_SOCKET = 1 };

/* identifiers of nvmlDeviceGetFieldValues, and how a value is typed there */
enum {
    NVML_FI_DEV_NVLINK_LINK_COUNT = 91,
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230,
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
};

#define NVML_EVENT_XID_CRITICAL_ERROR 0x8ULL
#define NVML_EVENT_MIG_CONFIG_CHANGE 0x100ULL
#define NVML_NO_INSTANCE 0xFFFFFFFFU

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
#define NVML_MEMORY_V2 (sizeof(nvmlMemory_v2_t) | 2U << 24)

enum { NVML_GPU_FABRIC_STATE_NOT_SUPPORTED = 0, NVML_GPU_FABRIC_STATE_COMPLETED = 3 };

typedef struct {
    unsigned char clusterUuid[16];
    unsigned status, cliqueId, state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned version;
    nvmlGpuFabricInfo_t first;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;
#define NVML_GPU_FABRIC_INFO_V2 (sizeof(nvmlGpuFabricInfo_v2_t) | 2U << 24)

typedef struct {
    unsigned version;
    nvmlGpuFabricInfo_t first;
    unsigned healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfo_v3_t;
#define NVML_GPU_FABRIC_INFO_V3 (sizeof(nvmlGpuFabricInfo_v3_t) | 3U << 24)

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

/* of MIG */
enum { NVML_GPU_INSTANCE_PROFILE_COUNT = 17, NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 9 };

typedef struct {
    unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    unsigned version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    unsigned copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;
#define NVML_GPU_INSTANCE_PROFILE_INFO_V2 (sizeof(nvmlGpuInstanceProfileInfo_v2_t) | 2U << 24)

typedef struct {
    unsigned start, size;
} nvmlInstancePlacement_t;

typedef struct {
    nvmlDevice_t device;
    unsigned id, profileId;
    nvmlInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
    unsigned id, sliceCount, instanceCount, multiprocessorCount;
    unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned id, profileId;
    nvmlInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
    unsigned multiprocessorCount;
    unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    unsigned gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        int siVal;
        unsigned uiVal;
        unsigned long ulVal;
        unsigned long long ullVal;
        long long sllVal;
        unsigned short usVal;
    } value;
} nvmlFieldValue_t;

#endif
