/* PCI bus IDs as NVML writes them. */
#ifndef FAKE_NVML_PCI_H
#define FAKE_NVML_PCI_H

#include <stdio.h>
#include <string.h>

#include "nvml.h"

/* Fill in the parts of a bus ID such as 00000000:1B:00.0; NVML_ERROR_UNKNOWN for an invalid one. */
static inline nvmlReturn_t read_pci(const char *text, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    if (sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return NVML_ERROR_UNKNOWN;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
    return NVML_SUCCESS;
}

#endif
