"""A healthy node: one GPU is held and busy, one is free, and one is in MIG mode."""

from collections.abc import Mapping

from tests.deploy.alerts.case import gpu, instance, series

ENDS = 95
"""The minute after which no readings exist any more."""

FREE = {"uuid": "GPU-bbbb", "index": "1"}
CUT = {"uuid": "GPU-cccc", "index": "2"}
_GPUS: tuple[Mapping[str, str], ...] = ({"pod": "train-0"}, FREE, CUT)


def _of_each(metric: str, values: str, **more: str) -> Mapping[str, str]:
    return {gpu(metric, **labels, **more): values for labels in _GPUS}


READINGS: Mapping[str, str] = {
    **_of_each("podgpu_gpu_up", "1"),
    **_of_each("podgpu_recovery_action", "0"),
    **_of_each("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "2"),
    **_of_each("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "5"),
    **_of_each("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0"),
    **_of_each("DCGM_FI_DEV_ROW_REMAP_PENDING", "0"),
    **_of_each("podgpu_xid_errors_total", "0", xid="79"),
    **{
        series_: value
        for reason, value in (
            ("hw_thermal", "0"),
            ("hw_slowdown", "0"),
            # Of a busy H100 that draws 689 W, with a limit of 700 W.
            ("power_cap", "1"),
            ("gpu_idle", "1"),
            ("sync_boost", "1"),
        )
        for series_, value in _of_each("podgpu_clock_throttle_active", value, reason=reason).items()
    },
    **_of_each("podgpu_attribution_conflicts", "0"),
    **_of_each("podgpu_device_info", "1"),
    gpu("DCGM_FI_DEV_GPU_UTIL", "train-0"): "90",
    gpu("DCGM_FI_DEV_GPU_UTIL", **FREE): "0",
    gpu("podgpu_device_holder_info", "train-0"): "1",
    instance("DCGM_FI_PROF_GR_ENGINE_ACTIVE", **CUT): "0",
}
"""The series of devices."""

OWN_SERIES: Mapping[str, str] = {
    series("up"): "1",
    series("process_start_time_seconds"): "-99999",
    series("podgpu_build_info", version="0.1.0"): "1",
    series("podgpu_gpus", state="present"): "3",
    series("podgpu_gpus", state="expected"): "3",
    series("podgpu_source_up", source="gpus", kind="nvml"): "1",
    series("podgpu_source_age_seconds", source="gpus", kind="nvml"): "4",
    series("podgpu_source_up", source="kubelet", kind="podresources"): "1",
    series("podgpu_source_age_seconds", source="kubelet", kind="podresources"): "9",
    series("podgpu_attribution_age_seconds", source="kubelet", kind="podresources"): "9",
    series("podgpu_device_ids_unresolved", source="kubelet", kind="podresources"): "0",
    series("podgpu_config_reloads_total", result="done"): "1",
    series("podgpu_sink_up", sink="collector"): "1",
    series("podgpu_sink_dropped_total", sink="collector", reason="queue_full"): "0",
    series("podgpu_sink_rejected_total", sink="collector", reason="partial"): "0",
    series("podgpu_sink_delivering", sink="collector"): "1",
    series("podgpu_sink_oldest_age_seconds", sink="collector"): "0",
    series("podgpu_sink_queue_writable", sink="collector"): "1",
}
"""The series about podgpu itself."""
