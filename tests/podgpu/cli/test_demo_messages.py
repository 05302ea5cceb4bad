"""What `podgpu demo` logs first."""

import pytest

from podgpu.cli.config_commands import demo_messages


@pytest.mark.parametrize(
    ("port", "page", "top"),
    [
        ("9400", "open http://localhost:9400/ ", "podgpu top"),
        ("9500", "open http://localhost:9500/ ", "podgpu top --url http://localhost:9500"),
    ],
)
def test_they_name_the_page_and_the_next_commands(port: str, page: str, top: str) -> None:
    _, opening, metrics = [text for _, text in demo_messages(port)]
    assert opening.startswith(page)
    assert opening.endswith(f": {top}")
    assert metrics == f"metrics: curl -s http://localhost:{port}/metrics"
