/* The errors of NVML: number, name, text. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"

static const struct {
    nvmlReturn_t number;
    const char *name, *text;
} ERRORS[] = {
    {0, "SUCCESS", "Success"},
    {1, "UNINITIALIZED", "Uninitialized"},
    {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"},
    {4, "NO_PERMISSION", "Insufficient Permissions"},
    {5, "ALREADY_INITIALIZED", "Already Initialized"},
    {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "GPU_IS_LOST", "GPU is lost"},
    {16, "RESET_REQUIRED", "GPU requires reset"},
    {17, "OPERATING_SYSTEM", "The operating system has blocked the request"},
    {18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {19, "IN_USE", "In use by another client"},
    {20, "MEMORY", "Insufficient Memory"},
    {21, "NO_DATA", "No data"},
    {22, "VGPU_ECC_NOT_SUPPORTED", "vGPU ECC not supported"},
    {23, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {24, "FREQ_NOT_SUPPORTED", "Frequency not supported"},
    {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {26, "DEPRECATED", "Deprecated"},
    {27, "NOT_READY", "Not ready"},
    {28, "GPU_NOT_FOUND", "GPU not found"},
    {29, "INVALID_STATE", "Invalid state"},
    {999, "UNKNOWN", "Unknown Error"},
};
enum { ERROR_COUNT = sizeof ERRORS / sizeof *ERRORS };

bool error_number(const char *written, nvmlReturn_t *result) {
    static const char PREFIX[] = "NVML_ERROR_";
    if (strncmp(written, PREFIX, sizeof PREFIX - 1) == 0) written += sizeof PREFIX - 1;
    for (int i = 0; i < ERROR_COUNT; i++) {
        if (strcmp(written, ERRORS[i].name) == 0) {
            *result = ERRORS[i].number;
            return true;
        }
    }
    long long number;
    if (!read_number(written, &number) || number < 0 || number > 9999) return false;
    *result = (nvmlReturn_t)number;
    return true;
}

const char *error_text(nvmlReturn_t result) {
    for (int i = 0; i < ERROR_COUNT; i++) {
        if (ERRORS[i].number == result) return ERRORS[i].text;
    }
    return "Unknown Error";
}
