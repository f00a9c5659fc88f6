/* The attributes of a GPU by name: one table, for descriptions and for `set` at run time alike. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum kind { TEXT, NUMBER, BYTES, FEATURE };

#define TEXT_OF(field) TEXT, offsetof(struct gpu, field), sizeof((struct gpu *)0)->field
#define NUMBER_OF(field, least, most) NUMBER, offsetof(struct gpu, field), 0, least, most
#define BYTES_OF(field) BYTES, offsetof(struct gpu, field), 0, 0, 1LL << 50
#define FEATURE_OF(field) FEATURE, offsetof(struct gpu, field), 0, 0, 0

#define MOST 0x7fffffffLL
#define COUNTER (1LL << 62)
#define WORD 0xffffffffLL
#define NO_BOUNDS 0, 0

static const struct attribute {
    const char *key;
    enum kind kind;
    size_t offset, size;
    long long least, most;
} ATTRIBUTES[] = {
    {"uuid", TEXT_OF(uuid), NO_BOUNDS},
    {"name", TEXT_OF(name), NO_BOUNDS},
    {"serial", TEXT_OF(serial), NO_BOUNDS},
    {"pci", TEXT_OF(pci), NO_BOUNDS},
    {"part-number", TEXT_OF(part_number), NO_BOUNDS},
    {"vbios", TEXT_OF(vbios), NO_BOUNDS},
    {"compute", TEXT_OF(compute), NO_BOUNDS},
    {"cpus", TEXT_OF(cpus), NO_BOUNDS},
    {"unsupported", TEXT_OF(unsupported), NO_BOUNDS},
    {"minor", NUMBER_OF(minor, 0, 255)},
    {"pci-device", NUMBER_OF(pci_device, 0, WORD)},
    {"pci-subsystem", NUMBER_OF(pci_subsystem, 0, WORD)},
    {"architecture", NUMBER_OF(architecture, 0, MOST)},
    {"brand", NUMBER_OF(brand, 0, MOST)},
    {"numa", NUMBER_OF(numa, -1, 1023)},
    {"host-bridge", NUMBER_OF(host_bridge, 0, MOST)},
    {"pcie-switch", NUMBER_OF(pcie_switch, 0, MOST)},
    {"memory", BYTES_OF(memory)},
    {"reserved", BYTES_OF(reserved)},
    {"used", BYTES_OF(used)},
    {"power-mw", NUMBER_OF(power_mw, 0, MOST)},
    {"power-limit-mw", NUMBER_OF(power_limit_mw, 0, MOST)},
    {"energy-mj", NUMBER_OF(energy_mj, 0, COUNTER)},
    {"recovery-action", NUMBER_OF(recovery_action, -1, MOST)},
    {"fabric-state", NUMBER_OF(fabric_state, -1, 255)},
    {"fabric-status", NUMBER_OF(fabric_status, 0, MOST)},
    {"fabric-health", NUMBER_OF(fabric_health, 0, 255)},
    {"temperature", NUMBER_OF(temperature, 0, 1000)},
    {"utilization", NUMBER_OF(utilization, 0, 100)},
    {"memory-utilization", NUMBER_OF(memory_utilization, 0, 100)},
    {"ecc", FEATURE_OF(ecc)},
    {"mig", FEATURE_OF(mig)},
    {"mig-pending", FEATURE_OF(mig_pending)},
    {"persistence", FEATURE_OF(persistence)},
    {"events", NUMBER_OF(events, 0, WORD)},
    {"nvlinks", NUMBER_OF(nvlink_count, 0, NVML_NVLINK_MAX_LINKS)},
    {"nvlink-version", NUMBER_OF(nvlink_version, 0, MOST)},
    {"corrected-volatile", NUMBER_OF(corrected_volatile, 0, COUNTER)},
    {"corrected-aggregate", NUMBER_OF(corrected_aggregate, 0, COUNTER)},
    {"uncorrected-volatile", NUMBER_OF(uncorrected_volatile, 0, COUNTER)},
    {"uncorrected-aggregate", NUMBER_OF(uncorrected_aggregate, 0, COUNTER)},
    {"retired-single", NUMBER_OF(retired_single, 0, 64)},
    {"retired-double", NUMBER_OF(retired_double, 0, 64)},
    {"retired-pending", NUMBER_OF(retired_pending, 0, 1)},
    {"remapped-corrected", NUMBER_OF(remapped_corrected, 0, MOST)},
    {"remapped-uncorrected", NUMBER_OF(remapped_uncorrected, 0, MOST)},
    {"remap-pending", NUMBER_OF(remap_pending, 0, 1)},
    {"remap-failed", NUMBER_OF(remap_failed, 0, 1)},
};
enum { ATTRIBUTE_COUNT = sizeof ATTRIBUTES / sizeof *ATTRIBUTES };

static bool read_whole(const char *text, long long *number, char **end) {
    errno = 0;
    *number = strtoll(text, end, 0);
    return *end != text && errno == 0;
}

bool read_number(const char *text, long long *number) {
    char *end;
    return read_whole(text, number, &end) && *end == '\0';
}

static bool read_bytes(const char *text, long long *bytes) {
    char *unit;
    if (!read_whole(text, bytes, &unit)) return false;
    int shift = strcmp(unit, "GiB") == 0 ? 30 : strcmp(unit, "MiB") == 0 ? 20 : strcmp(unit, "") == 0 ? 0 : -1;
    if (shift < 0 || *bytes < 0 || *bytes > (1LL << 50) >> shift) return false;
    *bytes <<= shift;
    return true;
}

static bool read_feature(const char *text, long long *feature) {
    *feature = strcmp(text, "enabled") == 0 ? ENABLED : strcmp(text, "disabled") == 0 ? DISABLED : UNSUPPORTED;
    return *feature != UNSUPPORTED || strcmp(text, "unsupported") == 0;
}

static bool refuse(const struct attribute *attribute, const char *value, const char *wanted, char *why, size_t size) {
    snprintf(why, size, "%s is \"%.60s\"; it must be %s", attribute->key, value, wanted);
    return false;
}

static bool set_number(const struct attribute *attribute, const char *value, long long *field, char *why, size_t size) {
    char wanted[80];
    long long number;
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", attribute->least, attribute->most);
    if (!read_number(value, &number) || number < attribute->least || number > attribute->most)
        return refuse(attribute, value, wanted, why, size);
    *field = number;
    return true;
}

static bool set_text(const struct attribute *attribute, const char *value, char *field, char *why, size_t size) {
    if (strlen(value) >= attribute->size) return refuse(attribute, value, "shorter", why, size);
    strcpy(field, value);
    return true;
}

bool gpu_set(struct gpu *gpu, const char *key, const char *value, char *why, size_t why_size) {
    for (int i = 0; i < ATTRIBUTE_COUNT; i++) {
        const struct attribute *attribute = &ATTRIBUTES[i];
        if (strcmp(attribute->key, key) != 0) continue;
        void *field = (char *)gpu + attribute->offset;
        switch (attribute->kind) {
        case TEXT: return set_text(attribute, value, field, why, why_size);
        case NUMBER: return set_number(attribute, value, field, why, why_size);
        case BYTES:
            return read_bytes(value, field) || refuse(attribute, value, "a size such as 80GiB", why, why_size);
        case FEATURE:
            return read_feature(value, field) ||
                   refuse(attribute, value, "enabled, disabled or unsupported", why, why_size);
        }
    }
    snprintf(why, why_size, "a GPU has no attribute \"%.60s\"", key);
    return false;
}
