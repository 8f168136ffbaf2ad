"""A request's body to what it asks for: JSON, or a form with a picture. Whatever is wrong with it is a problem."""

from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from kenthash.service.problems import Problem, invalid

MAX_FIELDS, MAX_FIELD = 16, 1 << 16  # of a form: fields, and bytes of one that is no picture
MAX_JSON = 1 << 20  # bytes: more than any valid body has, and little enough to be read in the event loop
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Form:
    image: bytes | None = None
    fields: dict[str, str] = field(default_factory=dict)


async def read(request: Request, model: type[M]) -> M | Form:
    """The model from a JSON body, or a form's fields as they are."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _form(request)
    if kind != "application/json":
        raise Problem("media-type", "send application/json, or multipart/form-data with a picture as `image`")
    body = await request.body()
    if len(body) > MAX_JSON:
        raise Problem("too-large", f"JSON of more than {MAX_JSON >> 20} MiB: no field needs as much")
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise invalid(error) from error


def validated(model: type[M], fields: dict[str, str]) -> M:
    """A form's fields are text: numbers are read from it."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise invalid(error) from error


async def _form(request: Request) -> Form:
    fields: dict[str, str] = {}
    image = None
    try:
        async with request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if name != "image":
                        raise Problem("invalid", f"{name[:60]}: the file belongs into a part called `image`")
                    image = await value.read()
                elif name in fields:
                    raise Problem("invalid", f"{name[:60]}: comes twice")
                else:
                    fields[name] = value
    except (HTTPException, MultiPartException, UnicodeDecodeError, KeyError, ValueError) as error:
        raise Problem("malformed", "the form cannot be read: send multipart/form-data with a boundary") from error
    return Form(image, fields)
