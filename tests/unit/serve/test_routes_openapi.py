"""The description of the routes is that of the app: the same paths, and examples that are answered."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.routing import Route

from qkv.serve.openapi import OPERATIONS, ApiExample, ApiOperation
from qkv.serve.routes import build_routes
from tests.support.served_models import AppClient

EXAMPLES = [(one, example) for one in OPERATIONS for example in one.examples]


KINDS: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is as a schema says, as far as these schemas go; an object may have more fields."""
    if "oneOf" in schema:
        return any(fits(value, one) for one in schema["oneOf"])
    if schema.get("type") == "array":
        return isinstance(value, list) and all(fits(one, schema["items"]) for one in value)
    if schema.get("type") == "object":
        fields = schema.get("properties", {})
        return isinstance(value, dict) and all(fits(value[name], fields[name]) for name in fields if name in value)
    kind = schema.get("type")
    return kind is None or (isinstance(value, KINDS[kind]) and isinstance(value, bool) == (kind == "boolean"))


@pytest.mark.parametrize("path", [one.path for one in OPERATIONS if one.method == "get" and one.path != "/metrics"])
def test_what_is_read_is_as_described(client: AppClient, path: str) -> None:
    (operation,) = (one for one in OPERATIONS if (one.method, one.path) == ("get", path))
    got = client.get(path.format(name="mini"))
    assert got.status == 200 and fits(got.json, operation.response)


def test_the_paths_of_the_app(client: AppClient) -> None:
    found = set()
    for route in build_routes(client.models, client.models.settings):
        assert isinstance(route, Route) and route.methods is not None
        path = re.sub(r":\w+}", "}", route.path)
        found |= {(method.lower(), path) for method in route.methods - {"HEAD"}}
    assert found == {(one.method, one.path) for one in OPERATIONS}


@pytest.mark.parametrize(
    ("operation", "example"), EXAMPLES, ids=[f"{one.path} {each.task} {each.lang}" for one, each in EXAMPLES]
)
def test_examples_are_answered(client: AppClient, operation: ApiOperation, example: ApiExample) -> None:
    name = client.models.default(example.task).name if example.task else "mini"
    if example.task == "translation":
        name = {"en": "en-zh", "zh": "zh-en"}[example.lang]
    path = operation.path.format(name=name, task=example.task)
    body = example.body
    if operation.path == "/models/{name}" and example.task not in client.models[name].tasks[:1]:
        path += f"?task={example.task}"
    if operation.path == "/":  # the first model fills blanks
        body = {"inputs": f"{body['inputs']} [MASK]"}
    got = client.post(path, body)
    assert got.status == 200, got.body
    if "event-stream" not in got.headers["content-type"]:
        assert fits(got.json, operation.response), (got.json, operation.response)
    assert set(example.body) <= set(operation.fields) | {"normalize", "documents"}


def test_the_document(client: AppClient) -> None:
    document = client.get("/openapi.json").json
    assert document["openapi"] == "3.1.0" and document["info"]["version"]
    tags = {one["name"] for one in document["tags"]}
    known = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["tags"][0] in tags and operation["summary"] and operation["x-summary-zh"]
            known.add(operation["operationId"])
            assert {one["name"] for one in operation["parameters"] if one["in"] == "path"} == set(
                re.findall(r"{(\w+)}", path)
            )
            assert ("requestBody" in operation) == (method == "post")
            if method == "post":
                examples = operation["requestBody"]["content"]["application/json"]["examples"]
                assert {name[-2:] for name in examples} == {"en", "zh"}
    assert len(known) == len(OPERATIONS)
    languages = [
        field
        for one in OPERATIONS
        for field in one.fields.values()
        if bool(field.get("description")) != bool(field.get("x-description-zh"))
    ]
    assert not languages
