/* The topology of devices: PCIe, NVLink, fabric. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

#define FABRIC_V2 0x02000024U
#define FABRIC_V3 0x03000028U

/* A key may end with the index of the peer, as in `topology_3`. Without it, it is for all peers. */
static nvmlReturn_t pair_value(const Dev *dev, nvmlDevice_t other, const char *key,
                               unsigned int *out) {
    char own[64];
    const Dev *second = fk_find(other);
    if (second == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (second->lost)
        return NVML_ERROR_GPU_IS_LOST;
    snprintf(own, sizeof own, "%s_%u", key, second->index);
    return fk_u32(dev->values, fk_get(dev->values, own) != NULL ? own : key, out);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *out) {
    ENTER_DEV(device);
    return fk_leave(pair_value(dev, other, "topology", (unsigned int *)out));
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other,
                                    nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *out) {
    char key[32];
    ENTER_DEV(device);
    snprintf(key, sizeof key, "p2p_%d", (int)index);
    return fk_leave(pair_value(dev, other, key, (unsigned int *)out));
}

/* ---- links ---- */

static nvmlReturn_t of_link(const Dev *dev, const char *stem, unsigned int link,
                            unsigned int *out) {
    char key[64];
    if (link >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s_%u", stem, link);
    return fk_u32(dev->values, key, out);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *out) {
    ENTER_DEV(device);
    return fk_leave(of_link(dev, "nvlink_state", link, (unsigned int *)out));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *out) {
    ENTER_DEV(device);
    return fk_leave(of_link(dev, "nvlink_remote_type", link, (unsigned int *)out));
}

static nvmlReturn_t remote_pci(const Dev *dev, unsigned int link, nvmlPciInfo_t *pci) {
    char key[64];
    snprintf(key, sizeof key, "nvlink_remote_%u", link);
    const char *bus_id = fk_text(dev->texts, key);
    if (link >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (bus_id == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busId, sizeof pci->busId, "%s", bus_id);
    return NVML_SUCCESS;
}

#define REMOTE_PCI(fn)                                                                \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {     \
        ENTER_DEV(device);                                                            \
        NEED(pci);                                                                    \
        return fk_leave(remote_pci(dev, link, pci));                                  \
    }
REMOTE_PCI(nvmlDeviceGetNvLinkRemotePciInfo)
REMOTE_PCI(nvmlDeviceGetNvLinkRemotePciInfo_v2)

/* ---- fabric ---- */

/* The text is a UUID. Characters that are no hexadecimal digits are skipped. */
static void read_uuid(const char *text, unsigned char *out) {
    for (int at = 0; *text != '\0' && at < NVML_GPU_FABRIC_UUID_LEN; text++) {
        unsigned int byte;
        if (*text == '-' || sscanf(text, "%2x", &byte) != 1)
            continue;
        out[at++] = (unsigned char)byte;
        text++;
    }
}

static nvmlReturn_t fabric(const Dev *dev, nvmlGpuFabricInfo_t *out) {
    unsigned int state = 0, status = 0;
    const char *cluster = fk_text(dev->texts, "fabric_cluster");
    nvmlReturn_t code = fk_u32(dev->values, "fabric_state", &state);
    memset(out, 0, sizeof *out);
    if (code != NVML_SUCCESS)
        return code;
    out->state = (nvmlGpuFabricState_t)state;
    fk_u32(dev->values, "fabric_clique", &out->cliqueId);
    if (fk_u32(dev->values, "fabric_status", &status) == NVML_SUCCESS)
        out->status = (nvmlReturn_t)status;
    if (cluster != NULL)
        read_uuid(cluster, out->clusterUuid);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out) {
    ENTER_DEV(device);
    NEED(out);
    return fk_leave(fabric(dev, out));
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out) {
    nvmlGpuFabricInfo_t found;
    ENTER_DEV(device);
    NEED(out);
    if (out->version != FABRIC_V2 && out->version != FABRIC_V3)
        return fk_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlReturn_t code = fabric(dev, &found);
    memcpy(out->clusterUuid, found.clusterUuid, sizeof found.clusterUuid);
    out->status = found.status;
    out->cliqueId = found.cliqueId;
    out->state = found.state;
    fk_u32(dev->values, "fabric_health_mask", &out->healthMask);
    unsigned int summary = 0;
    /* The member is not part of version 2. */
    if (out->version == FABRIC_V3) {
        fk_u32(dev->values, "fabric_health_summary", &summary);
        out->healthSummary = (unsigned char)summary;
    }
    return fk_leave(code);
}
