"""/docs: the OpenAPI description as one plain page, which needs no script and nothing from elsewhere."""

import json
from html import escape
from typing import Any


def page(openapi: dict[str, Any]) -> str:
    about = openapi["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(about['title'])} API</title><h1>{escape(about['title'])} {escape(about['version'])}</h1>",
        f"<p>{escape(about['description'])}</p>",
        "<p><a href=/openapi.json>openapi.json</a> describes the same for programs.</p>",
    ]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts += _operation(method.upper(), path, operation)
    parts.append("<h2>Schemas</h2>")
    for name, schema in openapi["components"]["schemas"].items():
        parts.append(f"<h3 id='{escape(name)}'>{escape(name)}</h3>{_block(schema)}")
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    parts = [f"<h2><code>{method} {escape(path)}</code></h2>", f"<p>{escape(operation.get('summary', ''))}</p>"]
    if "description" in operation:
        parts.append(f"<p>{escape(operation['description'])}</p>")
    if asked := operation.get("parameters"):
        rows = [
            f"<li><code>{escape(one['name'])}</code> ({one['in']}) {escape(one.get('description', ''))}"
            for one in asked
        ]
        parts.append(f"<ul>{''.join(rows)}</ul>")
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, <code>{escape(kind)}</code>:</p>{_block(body['schema'])}")
    rows = [f"<li>{status}: {_answer(told)}" for status, told in operation["responses"].items()]
    parts.append(f"<p>Answers:</p><ul>{''.join(rows)}</ul>")
    return parts


def _answer(told: dict[str, Any]) -> str:
    links = [
        f"<code>{escape(kind)}</code> <a href='#{name}'>{name}</a>"
        for kind, content in told.get("content", {}).items()
        if (name := escape(str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]))
    ]
    return " ".join([escape(told["description"]), *links])


def _block(schema: dict[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=1))}</pre>"
