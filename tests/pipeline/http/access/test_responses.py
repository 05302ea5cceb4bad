"""Tests of the response headers and the rate limit of the web configuration."""

import asyncio

from tests.support.web import Web


async def test_configured_headers_are_in_every_response(web: Web) -> None:
    web.write(
        "http_server_config:",
        "  headers:",
        "    X-Frame-Options: deny",
        "    Strict-Transport-Security: max-age=1",
        "    Content-Security-Policy: default-src 'self'",
        '    X-XSS-Protection: ""',
    )
    async with web.serving():
        for path in ("/metrics", "/", "/nothing", "/healthz"):
            client = await web.connect()
            client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
            _, headers, _ = await client.answer()
            assert headers["x-frame-options"] == "deny"
            assert headers["strict-transport-security"] == "max-age=1"
            assert headers["content-security-policy"] == "default-src 'self'"
            assert headers["x-content-type-options"] == "nosniff"
            assert "x-xss-protection" not in headers


async def test_requests_over_the_rate_limit_get_status_429(web: Web) -> None:
    web.write("rate_limit:", "  interval: 1h", "  burst: 3")
    async with web.serving():
        found = [(await web.scrape())[0] for _ in range(5)]
        assert found == [200] * 3 + [429] * 2
        assert (await (await web.connect()).get("/healthz"))[0] == 200


async def test_requests_are_allowed_again_after_the_interval(web: Web) -> None:
    web.write("rate_limit:", "  interval: 50ms", "  burst: 1")
    async with web.serving():
        assert (await web.scrape())[0] == 200
        await asyncio.sleep(0.06)
        assert (await web.scrape())[0] == 200
