"""The OpenAPI description: FastAPI's, with what holds for every route said once."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from kenthash.service.problems import ProblemModel, responses

EVERYWHERE = ("key-required", "foreign-page", "wrong-host", "overloaded", "time-limit")
NOT_OURS = ("HTTPValidationError", "ValidationError")  # FastAPI's own form of errors


def describe(app: FastAPI) -> dict[str, Any]:
    told = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = told["components"]["schemas"]
    for name in NOT_OURS:
        schemas.pop(name, None)
    schemas["ProblemModel"] = ProblemModel.model_json_schema()
    common = {str(status): answer for status, answer in responses(*EVERYWHERE).items()}
    invalid = responses("invalid")[422]
    for operations in told["paths"].values():
        for operation in operations.values():
            operation["responses"] = common | operation["responses"]
            if "422" in operation["responses"]:
                operation["responses"]["422"] = invalid
    told["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    return told
