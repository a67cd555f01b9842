"""What /metrics shows, and the access log."""

import asyncio
import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message, Receive, Scope, Send

from qkv.serve.batching import BatchFacts
from qkv.serve.journal import SMALL_BODY, Journal, Room
from qkv.serve.metrics import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def test_names_labels_and_units() -> None:
    metrics = Metrics()
    metrics.model("mini", ["fill-mask"], {"precision": "fp32"}, lambda: 70)
    metrics.request("/embed", "mini", 200, 0.5)
    metrics.request("/embed", "mini", 429, 0.25)
    metrics.failure("overloaded")
    metrics.batch("mini", BatchFacts(3, 90, 0.125))
    metrics.tokenization(0.01)
    metrics.waited(0.02)
    found = samples(metrics)
    here = (("model", "mini"), ("route", "/embed"))
    assert found["qkv_requests_total", (*here, ("status", "200"))] == 1
    assert found["qkv_requests_total", (*here, ("status", "429"))] == 1
    assert found["qkv_failures_total", (("reason", "overloaded"),)] == 1
    assert found["qkv_failures_total", (("reason", "fault"),)] == 0
    assert found["qkv_queue_tokens", (("model", "mini"),)] == 70
    assert found["qkv_batch_tokens_sum", ()] == 90 and found["qkv_batch_rows_sum", ()] == 3
    assert found["qkv_request_duration_seconds_sum", ()] == 0.75
    assert found["qkv_inference_duration_seconds_sum", ()] == 0.125
    assert found["qkv_tokenization_duration_seconds_count", ()] == found["qkv_queue_duration_seconds_count", ()] == 1
    assert found["qkv_model_info", (("model", "mini"), ("precision", "fp32"), ("tasks", "fill-mask"))] == 1


def test_two_sets_do_not_meet() -> None:
    Metrics().failure("fault")
    assert samples(Metrics())["qkv_failures_total", (("reason", "fault"),)] == 0


class Service:
    def __init__(self) -> None:
        self.draining, self.metrics, self.names = False, Metrics(), ("mini",)


def asked(journal: Journal, path: str = "/embed", headers: list[tuple[bytes, bytes]] | None = None) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"token=secret", "client": ("1.2.3.4", 5)}
    asyncio.run(journal({**scope, "headers": headers or []}, receive, send))
    return sent


def app(status: int | None = 200, **about: Any) -> Any:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["qkv"].update(about)
        if status is not None:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    return answer


def test_a_line_of_json_for_each_request() -> None:
    lines: list[str] = []
    service = Service()
    asked(Journal(app(model="mini", tokens=7, windows=2, route="/embed"), service, 1000, lines.append))
    asked(Journal(app(404, model="made up"), service, 1000, lines.append), "/路")
    asked(Journal(app(None), service, 1000, lines.append))
    first, second, third = map(json.loads, lines)
    assert list(first) == ["time", "method", "path", "status", "seconds", "model", "tokens", "windows", "client"]
    assert (first["status"], first["model"], first["tokens"], first["windows"]) == (200, "mini", 7, 2)
    assert first["client"] == "1.2.3.4" and "secret" not in lines[0]
    assert (second["path"], second["status"], second["model"]) == ("/路", 404, "made up")
    assert third["status"] == 499
    shown = service.metrics.text().decode()
    assert 'qkv_requests_total{model="mini",route="/embed",status="200"} 1.0' in shown
    assert "made up" not in shown, "a label for every name that somebody makes up would be a leak"
    assert len(asked(Journal(app(), service, 1000))) == 2, "without a log"


def test_connections_close_while_the_server_stops() -> None:
    service = Service()
    assert asked(Journal(app(), service, 1000))[0]["headers"] == []
    service.draining = True
    assert asked(Journal(app(), service, 1000))[0]["headers"] == [(b"connection", b"close")]


def test_large_bodies_wait_for_room() -> None:
    async def story() -> None:
        room, order = Room(10), list[str]()

        async def hold(name: str, size: int, until: asyncio.Event) -> None:
            await room.take(size)
            order.append(name)
            await until.wait()
            room.give(size)

        first, rest = asyncio.Event(), asyncio.Event()
        rest.set()
        tasks = [asyncio.create_task(hold("a", 8, first))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(hold(name, size, rest)) for name, size in (("b", 5), ("c", 1), ("d", 10))]
        await asyncio.sleep(0.01)
        assert order == ["a"], "a small one does not pass a large one for ever"
        tasks[2].cancel()
        await asyncio.sleep(0)
        first.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["a", "b", "d"] and room.left == 10

    asyncio.run(story())


@pytest.mark.parametrize(
    ("headers", "size"),
    [
        ([], 0),
        ([(b"content-length", b"100")], 0),
        ([(b"content-length", b"%d" % (SMALL_BODY + 1))], SMALL_BODY + 1),
        ([(b"content-length", b"99999999999")], 1 << 20),
        ([(b"content-length", b"nonsense")], 0),
        ([(b"transfer-encoding", b"chunked")], 1 << 20),
    ],
)
def test_the_size_of_a_body(headers: list[tuple[bytes, bytes]], size: int) -> None:
    journal = Journal(app(), Service(), 1 << 20)
    assert journal._size({"type": "http", "headers": headers}) == size
    assert asked(journal, headers=headers) and journal._room.left == 8 << 20
