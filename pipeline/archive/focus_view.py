"""The SQL view of an archive with the columns of FOCUS.

FOCUS is the FinOps Open Cost and Usage Specification (https://focus.finops.org/). The view `focus`
has a row for each charge period, device, holder and kind of charge. It needs the view
`archive_rows`, and three tables that `focus_rows` fills. docs/focus.md shows the same text for
readers who use DuckDB themselves.
"""

from typing import Final

TABLES: Final = """
CREATE OR REPLACE TEMP TABLE focus_periods (
    period_start TIMESTAMPTZ, period_end TIMESTAMPTZ,
    billing_start TIMESTAMPTZ, billing_end TIMESTAMPTZ,
    price_start TIMESTAMPTZ
);
CREATE OR REPLACE TEMP TABLE focus_prices (
    kind VARCHAR, cluster VARCHAR, model VARCHAR, price_start TIMESTAMPTZ, unit_price DECIMAL(18, 9)
);
CREATE OR REPLACE TEMP TABLE focus_parts (
    model VARCHAR, profile VARCHAR, is_instance BOOLEAN, slices INTEGER, of_slices INTEGER
);
"""
"""The tables: the charge periods, the price of each kind of charge, and the parts of GPUs."""

AMOUNTS: Final = """
CREATE OR REPLACE TEMP TABLE focus_amounts AS
WITH
span AS (
    SELECT min(period_start) AS first, max(period_end) AS after FROM focus_periods
),
hours AS (
    SELECT
        cluster, node, ledger, device, hour, namespace, pod, container, pod_uid,
        sum(held_ns) AS held_ns,
        CASE WHEN sum(busy_ns) = 0 AND arg_max(busy_ns IS NULL, serial) THEN NULL
            ELSE sum(busy_ns) END AS busy_ns,
        sum(energy_mj) AS energy_mj,
        max(sample_data) AS sample_data
    FROM archive_rows, span
    WHERE row = 'usage' AND hour >= first AND hour < after
    GROUP BY ALL
),
devices AS (
    SELECT
        cluster, node, device,
        arg_max(gpu_index, hour) AS gpu_index,
        coalesce(max(model), '') AS model,
        coalesce(max(profile), '') AS profile,
        starts_with(device, 'MIG-') AS is_instance
    FROM archive_rows, span
    WHERE row IN ('usage', 'device') AND hour >= first AND hour < after
    GROUP BY cluster, node, device
),
pods AS (
    SELECT
        cluster, node, ledger, namespace, pod, pod_uid,
        arg_max(owner_kind, serial) FILTER (WHERE owner_name <> '') AS owner_kind,
        arg_max(owner_name, serial) FILTER (WHERE owner_name <> '') AS owner_name,
        arg_max(labels, serial) AS labels
    FROM archive_rows
    WHERE row = 'container'
    GROUP BY ALL
),
held AS (
    SELECT
        period.*, hours.cluster, hours.node, device, hours.namespace,
        coalesce(owner_kind, 'Pod') AS workload_kind,
        coalesce(owner_name, nullif(hours.pod, ''), 'uid ' || hours.pod_uid) AS workload_name,
        coalesce(labels, '{}') AS labels,
        sum(held_ns) AS held_ns,
        sum(busy_ns) AS busy_ns,
        sum(held_ns - busy_ns) AS idle_ns,
        sum(energy_mj) AS energy_mj,
        max(sample_data) AS sample_data
    FROM hours
    ASOF JOIN focus_periods AS period ON hours.hour >= period.period_start
    LEFT JOIN pods USING (cluster, node, ledger, namespace, pod, pod_uid)
    WHERE hours.namespace IS NOT NULL
    GROUP BY ALL
),
unattributed AS (
    SELECT
        period.*, cluster, node, device,
        sum(held_ns) AS unheld_ns,
        sum(energy_mj) AS energy_mj,
        max(sample_data) AS sample_data
    FROM hours
    ASOF JOIN focus_periods AS period ON hours.hour >= period.period_start
    WHERE namespace IS NULL
    GROUP BY ALL
),
unknown AS (
    SELECT period_start, cluster, node, device, sum(unknown_ns) AS unknown_ns
    FROM span, archive_rows
    ASOF JOIN focus_periods AS period ON archive_rows.hour >= period.period_start
    WHERE row = 'device' AND hour < after
    GROUP BY ALL
),
unheld AS (
    SELECT unattributed.*, least(coalesce(unknown_ns, 0), unheld_ns) AS unknown_ns
    FROM unattributed LEFT JOIN unknown USING (period_start, cluster, node, device)
),
amounts AS (
    SELECT * EXCLUDE (held_ns, energy_mj), 'held' AS kind, 'held' AS state, held_ns AS amount
    FROM held
    UNION ALL BY NAME
    SELECT * EXCLUDE (unheld_ns, unknown_ns, energy_mj), 'free' AS kind, 'free' AS state,
        unheld_ns - unknown_ns AS amount
    FROM unheld
    UNION ALL BY NAME
    SELECT * EXCLUDE (unheld_ns, unknown_ns, energy_mj), 'unknown' AS kind, 'unknown' AS state,
        unknown_ns AS amount
    FROM unheld
    UNION ALL BY NAME
    SELECT * EXCLUDE (held_ns, busy_ns, idle_ns, energy_mj), 'energy' AS kind, 'held' AS state,
        energy_mj AS amount
    FROM held
    UNION ALL BY NAME
    SELECT * EXCLUDE (unheld_ns, unknown_ns, energy_mj), 'energy' AS kind,
        'unattributed' AS state, energy_mj AS amount
    FROM unheld
)
SELECT amounts.*, gpu_index, model, profile, is_instance,
    coalesce(nullif(cluster, ''), node) AS account
FROM amounts JOIN devices USING (cluster, node, device)
WHERE amount > 0;
"""
"""The amounts of each charge: nanoseconds of time, or millijoules of energy."""

PRICED: Final = """
CREATE OR REPLACE TEMP VIEW focus_charges AS
WITH quantities AS (
    SELECT
        focus_amounts.*, coalesce(nullif(model, ''), 'unknown') AS sku, unit_price, slices,
        of_slices,
        CASE kind
            WHEN 'energy' THEN (20 * amount + 36) // 72
            ELSE (2 * amount + 3600) // 7200 END AS consumed_billionths,
        CASE kind
            WHEN 'energy' THEN (20 * amount + 36) // 72
            ELSE (2 * amount * slices + 3600 * of_slices) // (7200 * of_slices)
            END AS priced_billionths
    FROM focus_amounts
    JOIN focus_prices USING (kind, cluster, model, price_start)
    JOIN focus_parts USING (model, profile, is_instance)
)
SELECT
    *,
    CAST(CAST(consumed_billionths AS DECIMAL(19, 0)) * CAST(0.000000001 AS DECIMAL(10, 9))
        AS DECIMAL(20, 9)) AS consumed,
    CAST(CAST(priced_billionths AS DECIMAL(19, 0)) * CAST(0.000000001 AS DECIMAL(10, 9))
        AS DECIMAL(20, 9)) AS priced,
    priced * unit_price AS cost
FROM quantities;
"""
"""The charges with their prices. A billionth of an hour is 3600 ns; 1 kWh is 3.6e9 mJ."""

VIEW: Final = """
CREATE OR REPLACE TEMP VIEW focus AS
SELECT
    NULL AS AvailabilityZone,
    cost AS BilledCost,
    account AS BillingAccountId,
    account AS BillingAccountName,
    'Cluster' AS BillingAccountType,
    getvariable('currency') AS BillingCurrency,
    billing_end AS BillingPeriodEnd,
    billing_start AS BillingPeriodStart,
    NULL AS CapacityReservationId,
    NULL AS CapacityReservationStatus,
    'Usage' AS ChargeCategory,
    NULL AS ChargeClass,
    concat(
        if(kind = 'energy', 'Energy of ', 'Time of '),
        coalesce(nullif(model, ''), 'a GPU'),
        if(profile = '', '', ' ' || profile),
        ', ',
        if(state = 'held', concat_ws('/', nullif(namespace, ''), workload_kind, workload_name),
            state)
    ) AS ChargeDescription,
    'Usage-Based' AS ChargeFrequency,
    period_end AS ChargePeriodEnd,
    period_start AS ChargePeriodStart,
    NULL AS CommitmentDiscountCategory,
    NULL AS CommitmentDiscountId,
    NULL AS CommitmentDiscountName,
    NULL AS CommitmentDiscountQuantity,
    NULL AS CommitmentDiscountStatus,
    NULL AS CommitmentDiscountType,
    NULL AS CommitmentDiscountUnit,
    consumed AS ConsumedQuantity,
    if(kind = 'energy', 'kWh', 'Hours') AS ConsumedUnit,
    cost AS ContractedCost,
    unit_price AS ContractedUnitPrice,
    cost AS EffectiveCost,
    NULL AS InvoiceId,
    getvariable('provider') AS InvoiceIssuerName,
    cost AS ListCost,
    unit_price AS ListUnitPrice,
    'Standard' AS PricingCategory,
    getvariable('currency') AS PricingCurrency,
    unit_price AS PricingCurrencyContractedUnitPrice,
    cost AS PricingCurrencyEffectiveCost,
    unit_price AS PricingCurrencyListUnitPrice,
    priced AS PricingQuantity,
    if(kind = 'energy', 'kWh', 'GPU-Hours') AS PricingUnit,
    getvariable('provider') AS ProviderName,
    getvariable('provider') AS PublisherName,
    NULL AS RegionId,
    NULL AS RegionName,
    device AS ResourceId,
    concat_ws(' ', node, if(gpu_index IS NULL, device, 'GPU ' || gpu_index), nullif(profile, ''))
        AS ResourceName,
    if(is_instance, 'MIG instance', 'GPU') AS ResourceType,
    'Compute' AS ServiceCategory,
    'GPU' AS ServiceName,
    'Other (Compute)' AS ServiceSubcategory,
    if(kind = 'energy', 'energy', 'gpu-hour/' || sku) AS SkuId,
    if(kind = 'energy', 'Energy', 'GPU time') AS SkuMeter,
    if(kind = 'energy', NULL, CAST(json_object('x_Model', sku) AS VARCHAR)) AS SkuPriceDetails,
    if(kind = 'energy', 'energy', concat('gpu-hour/', sku, '/', kind)) AS SkuPriceId,
    account || '/' || nullif(namespace, '') AS SubAccountId,
    nullif(namespace, '') AS SubAccountName,
    if(nullif(namespace, '') IS NULL, NULL, 'Namespace') AS SubAccountType,
    CAST(json_merge_patch(
        if(json_valid(labels), CAST(labels AS JSON), CAST('{}' AS JSON)),
        json_object(
            'podgpu/namespace', nullif(namespace, ''), 'podgpu/node', node,
            'podgpu/state', state, 'podgpu/workload', workload_kind || '/' || workload_name
        )
    ) AS VARCHAR) AS Tags,
    CAST(round(CAST(busy_ns AS DOUBLE) / 3.6e12, 9) AS DECIMAL(20, 9)) AS x_BusyHours,
    CAST(round(CAST(idle_ns AS DOUBLE) / 3.6e12, 9) AS DECIMAL(20, 9)) AS x_IdleHours,
    nullif(profile, '') AS x_MigProfileName,
    node AS x_NodeName,
    sample_data AS x_SampleData,
    state AS x_UsageState,
    workload_kind AS x_WorkloadKind,
    workload_name AS x_WorkloadName
FROM focus_charges;
"""
"""The columns of FOCUS 1.2 in alphabetical order, then podgpu's own."""

ORDER: Final = (
    "ChargePeriodStart, BillingAccountId, x_NodeName, ResourceId, SkuMeter DESC, "
    "x_UsageState DESC, SubAccountId, x_WorkloadKind, x_WorkloadName, Tags"
)
"""The order of rows in an export."""
