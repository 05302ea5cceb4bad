"""Every scraper takes the whole page: no warning, no dropped sample.

Most of these programs are built for this comparison alone, so `make e2e-more` runs these tests, and
`make e2e` does not.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import debian
from tests.e2e.full_page import FullPage
from tests.e2e.peers import Scrapers
from tests.e2e.processes import Process, wait_until
from tests.e2e.scrapers import (
    JOB,
    OPENMETRICS,
    TEXT,
    Scraping,
    job,
    node_exporter,
    prometheus,
    scraping_collector,
    serious,
    vmagent,
)

pytestmark = pytest.mark.more

ENOUGH = 6
"""Number of successful scrapes."""

ACCEPTED = {
    OPENMETRICS: "application/openmetrics-text;version=1.0.0",
    TEXT: "text/plain;version=0.0.4",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullPage]:
    with FullPage(tmp_path_factory.mktemp("full") / "podgpu").around() as page:
        yield page


def samples(page: FullPage, accept: str = "text/plain") -> int:
    """Return the number of samples on the page."""
    return sum(1 for line in page.page(accept).splitlines() if line and line[0] != "#")


def check_prometheus(server: Scraping, page: FullPage, name: str = JOB) -> int:
    """Assert that scrapes were complete; return their number of samples."""
    of = f'{{job="{name}"}}'
    scraped = f"(count_over_time(up{of}[1m]) >= {ENOUGH}) and (min_over_time(up{of}[1m]) == 1)"
    wait_until(lambda: server.query(scraped), f"{scraped}: {server.query('up')}")
    count = f"scrape_samples_scraped{of}"
    wait_until(
        lambda: server.number(count) in {samples(page, each) for each in ACCEPTED.values()},
        "as many samples as the page has",
    )
    # A duplicate series with the same value would cause no warning.
    series = f'count({{job="{name}", __name__!~"up|scrape_.*"}})'
    wait_until(lambda: server.number(series) == server.number(count), "a series for each sample")
    assert server.number(f"scrape_samples_post_metric_relabeling{of}") == server.number(count)
    assert server.refused() == {}
    assert server.problems() == []
    print(f"{name}: {server.number(count):g} samples")
    return int(server.number(count))


def test_prometheus_2_takes_the_whole_page(
    page: FullPage, programs: debian.Prometheus, tmp_path: Path
) -> None:
    with prometheus(programs.server, tmp_path / "prometheus", [job(page.address)]) as server:
        assert check_prometheus(server, page) > 1000


@pytest.mark.parametrize("protocol", [OPENMETRICS, TEXT])
def test_prometheus_3_takes_the_whole_page_in_both_formats(
    page: FullPage, scrapers: Scrapers, tmp_path: Path, protocol: str
) -> None:
    scrape = job(page.address, scrape_protocols=[protocol])
    with prometheus(scrapers.prometheus, tmp_path / "prometheus", [scrape]) as server:
        assert check_prometheus(server, page) > 1000
        (target,) = server.api("targets", state="active")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")


def test_a_label_of_each_kind_is_in_prometheus(
    page: FullPage, scrapers: Scrapers, tmp_path: Path
) -> None:
    with prometheus(scrapers.prometheus, tmp_path / "p", [job(page.address)]) as server:
        wait_until(lambda: server.query('DCGM_FI_DEV_FB_USED{pod="mig-0"}'), "the MIG instance")
        (mig,) = server.query('DCGM_FI_DEV_FB_USED{pod="mig-0"}')
        assert mig.labels["GPU_I_PROFILE"] == "3g.40gb"
        (held,) = server.query('DCGM_FI_DEV_FB_USED{pod="train-0"}')
        assert held.labels["annotation_example_com_note"].startswith('a "quoted" text, a \\ and\n')
        assert held.labels["pod_uid"].startswith("0f0e0d0c-")
        assert (held.labels["modelName"], held.labels["pod_label_modelName"]) == (
            "NVIDIA H100 80GB HBM3",
            "own",
        )
        shared = server.query('DCGM_FI_DEV_SM_CLOCK{pod=~"serve-.*"}')
        assert sorted(series.labels["vgpu"] for series in shared) == ["0", "1", "2"]


def test_vmagent_takes_the_whole_page(page: FullPage, scrapers: Scrapers, tmp_path: Path) -> None:
    jobs = [job(page.address)]
    with (
        prometheus(scrapers.prometheus, tmp_path / "receiver", []) as receiver,
        vmagent(scrapers.vmagent, tmp_path / "vmagent", jobs, receiver) as agent,
    ):
        check_prometheus(receiver, page)
        targets = agent.counts(r"vm_promscrape_targets")
        assert {series for series, count in targets.items() if count} == {
            'vm_promscrape_targets{type="static_configs", status="up"}'
        }
        lost = agent.counts(
            r"vm_rows_invalid_total|vm_promscrape_\w*(?:errors|exceeded|failed|timed_out)\w*"
            r"|vmagent_remotewrite_\w*(?:dropped|errors|rejected)\w*|vm_log_messages_total"
        )
        assert {
            series: count
            for series, count in lost.items()
            if count and 'level="info"' not in series
        } == {}
        assert serious(agent.process.output()) == []


def test_the_prometheus_receiver_of_a_collector_takes_the_whole_page(
    page: FullPage, scrapers: Scrapers, tmp_path: Path
) -> None:
    jobs = [job(page.address)]
    with scraping_collector(scrapers.collector, tmp_path / "collector", jobs) as collector:
        wait_until(lambda: len(collector.scrapes()) > ENOUGH, "scrapes")
        scrapes = collector.scrapes()
        assert serious(collector.process.output()) == []
    for scrape in scrapes:
        taken = scrape.samples.total()
        assert scrape.about["up"] == 1
        assert scrape.about["scrape_samples_scraped"] == taken
        assert scrape.about["scrape_samples_post_metric_relabeling"] == taken
        assert max(scrape.samples.values()) == 1
        assert taken > 1000
    print(f"Collector: {scrapes[-1].samples.total()} samples in the last of {len(scrapes)} scrapes")


def test_the_file_is_on_the_page_of_node_exporter(
    page: FullPage, scrapers: Scrapers, tmp_path: Path
) -> None:
    def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return values by name and labels; node_exporter adds missing labels with empty values."""
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = frozenset((key, value) for key, value in sample.labels.items() if value)
                assert (sample.name, labels) not in found
                found[sample.name, labels] = float(sample.value)
        return found

    program, files = scrapers.node_exporter, page.file.parent
    with node_exporter(program, tmp_path / "node_exporter", files) as exporter:

        def both() -> tuple[set[object], set[object]]:
            return set(values(page.file.read_text())), set(values(exporter.page()))

        wait_until(lambda: both()[0] <= both()[1], "all series of the file")
        shown = values(exporter.page())
        assert shown["node_textfile_scrape_error", frozenset()] == 0
        started = shown["process_start_time_seconds", frozenset()]
        assert started != shown["podgpu_process_start_time_seconds", frozenset()]
        jobs = [job(exporter.address)]
        with prometheus(scrapers.prometheus, tmp_path / "prometheus", jobs) as server:
            scraped = f"min_over_time(up[1m]) == 1 and count_over_time(up[1m]) >= {ENOUGH}"
            wait_until(lambda: server.query(scraped), "scrapes")
            assert server.number('max_over_time(node_textfile_scrape_error{job!=""}[1m])') == 0
            assert server.number("count(DCGM_FI_DEV_GPU_TEMP) > 0") > 0
            print(f"node_exporter: {server.number('scrape_samples_scraped'):g} samples")
            assert (server.refused(), server.problems()) == ({}, [])
        assert serious(exporter.process.output()) == []


def test_podgpu_itself_logs_no_warning_while_it_is_scraped(page: FullPage) -> None:
    assert isinstance(page.process, Process)
    warned = [line for line in serious(page.output()) if "WARNING" in line or "ERROR" in line]
    # The scenario has no kernel log, and a fault of a GPU.
    assert [line for line in warned if "XID" not in line and "Xid" not in line] == []
