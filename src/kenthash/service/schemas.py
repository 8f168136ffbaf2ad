"""The bodies of requests and answers: from these models come validation, the OpenAPI description and /docs.

Answers are written as JSON directly, without passing through their models, which takes less processor time.
"""

from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from fastapi import Request
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from kenthash.errors import DataError
from kenthash.search.filters import MAX_LENGTH
from kenthash.search.metadata import MAX_ID, PRIVATE_KEYS, check_metadata
from kenthash.service.errors import ApiError, invalid

MAX_TEXT = 2000  # characters of a query
MAX_PAGE = 100  # hits of an answer
MAX_OFFSET = 9_900
MAX_LABELS = 1000  # of an answer
MAX_COMPARED = 100_000  # items of an index whose duplicates are looked for: every pair is compared
MAX_FACETS = 100  # cameras and places of an answer
MAX_WORDS = 8  # texts of each kind that are added to a query
REPEATED = ("plus", "without")  # fields of a form that may be sent several times
MAX_FIELDS = 8 + 2 * MAX_WORDS  # of a form
MAX_FIELD = 1 << 16  # bytes of a field that is not a file
MAX_JSON = 1 << 20  # bytes: more than any valid body has, and few enough to be parsed in the event loop

JsonModel = TypeVar("JsonModel", bound=BaseModel)
FormModel = TypeVar("FormModel", bound=BaseModel)


class JsonOrForm(Generic[JsonModel, FormModel]):
    """A request body that is JSON, or a form with a picture: its description, and how it is read."""

    def __init__(self, json_model: type[JsonModel], form_model: type[FormModel]) -> None:
        self.json_model, self.form_model = json_model, form_model

    @property
    def openapi(self) -> dict[str, Any]:
        content = {
            "application/json": {"schema": self.json_model.model_json_schema()},
            "multipart/form-data": {"schema": self.form_model.model_json_schema()},
        }
        return {"requestBody": {"required": True, "content": content}}

    async def read(self, request: Request) -> JsonModel | FormModel:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if media_type == "multipart/form-data":
                return self.form_model.model_validate(await _form_fields(request))  # numbers are read from text
            if media_type != "application/json":
                raise ApiError("media-type", "send application/json, or multipart/form-data with a picture as `image`")
            body = await request.body()
            if len(body) > MAX_JSON:
                raise ApiError("too-large", f"JSON of more than {MAX_JSON >> 20} MiB: no valid body has as much")
            return self.json_model.model_validate_json(body, strict=True)
        except ValidationError as error:
            raise invalid(error) from error


async def _form_fields(request: Request) -> dict[str, Any]:
    fields: dict[str, str | bytes] = {}
    repeated: dict[str, list[str]] = {name: [] for name in REPEATED}
    try:
        async with request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile) != (name == "image"):
                    raise ApiError("invalid", f"{name[:60]}: the picture has to be a file part named `image`")
                if name in REPEATED:
                    repeated[name].append(str(value))
                    continue
                if name in fields:
                    raise ApiError("invalid", f"{name[:60]}: sent twice")
                fields[name] = await value.read() if isinstance(value, UploadFile) else value
    except (HTTPException, MultiPartException, UnicodeDecodeError, KeyError, ValueError) as error:
        raise ApiError("malformed", "the form cannot be read: send multipart/form-data with a boundary") from error
    return {"image": b"", **fields, **{name: values for name, values in repeated.items() if values}}


def _not_empty(image: bytes) -> bytes:
    if not image:
        raise PydanticCustomError("image", "send the content of the picture as a file part named `image`")
    return image


def _checked_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Checked as the index does, so that an error of the index is never the request's fault."""
    try:
        check_metadata("the item", metadata)
    except DataError as error:
        reason = str(error).partition(": ")[2]  # what follows the name of the item
        raise PydanticCustomError("metadata", "{reason}", {"reason": reason}) from error
    if reserved := [key for key in PRIVATE_KEYS if key in metadata]:
        raise PydanticCustomError("metadata", "{key} is set by `kenthash index add` only", {"key": reserved[0]})
    return metadata


Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S", description="What to look for, in words")]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, description="An item: similar ones are found")]
Upload = Annotated[bytes, AfterValidator(_not_empty)]
CheckedMetadata = Annotated[dict[str, str | int | float | bool | list[str] | None], AfterValidator(_checked_metadata)]


class SearchOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    k: int = Field(24, ge=1, le=MAX_PAGE, description="The number of hits on this page")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="The number of hits on the pages before")
    radius: int | None = Field(None, ge=0, le=1024, description="Leave out items that differ in more bits")
    filter: str | None = Field(
        None, max_length=MAX_LENGTH, description="On metadata: `labels has 'dog' and year >= 2020`"
    )
    plus: list[Text] = Field([], max_length=MAX_WORDS, description="And with more of this, in words")
    without: list[Text] = Field([], max_length=MAX_WORDS, description="And with less of this, in words")
    min_relevance: float = Field(0, ge=0, le=1, description="Leave out hits of a lower relevance, but by words")
    find: Literal["pictures", "texts"] = Field("pictures", description="Whose codes are compared with the query's")


class SearchQuery(SearchOptions):
    """Exactly one of text and id."""

    text: Text | None = None
    id: Id | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.text is None) == (self.id is None):
            raise PydanticCustomError("query", "give one of: text, id, or a picture as multipart/form-data")
        return self


class SearchForm(SearchOptions):
    """A picture as the query."""

    image: Upload


class Hit(BaseModel):
    id: str
    distance: int = Field(description="The number of bits that differ")
    weighted: float = Field(description="What hits are ordered by: the share of the bits, as they count, that differ")
    relevance: float | None = Field(
        description="How often a hit like this one is right, from 0 to 1; null where the model was not calibrated, and "
        "with `plus` or `without`"
    )
    by_words: bool = Field(description="Whether its name, texts or labels have all the words; such hits come first")
    code: str = Field(description="Hexadecimal; bit i of byte j is bit 8j+i of the code")
    labels: list[str]
    text: str | None
    metadata: dict[str, Any]
    has_image: bool


class AskedFor(BaseModel):
    kind: Literal["text", "image", "id"]
    code: str
    bits: int


class Timing(BaseModel):
    encode_ms: float
    search_ms: float
    total_ms: float


class Answer(BaseModel):
    hits: list[Hit]
    query: AskedFor
    offset: int
    k: int
    more: bool
    close: int | None = Field(
        description="The number of these hits, the first ones, that have the words or are more likely right than "
        "wrong; null where there is no relevance. 0 on the first page: nothing here is close"
    )
    timing: Timing
    proven: bool = Field(description="Whether these are certainly the nearest; else some of these may have been missed")
    looked_at: int | None = Field(description="Codes that the engine compared with the query's, if it reports them")
    items: int
    bytes_per_item: int = Field(description="Of a code")


class NewItem(BaseModel):
    """Exactly one of code and text."""

    model_config = ConfigDict(extra="forbid")

    code: str | None = Field(None, pattern="^([0-9a-fA-F]{2})+$", max_length=256)
    text: Text | None = None
    metadata: CheckedMetadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.code is None) == (self.text is None):
            raise PydanticCustomError("item", "give one of: code, text, or a picture as multipart/form-data")
        return self


class NewItemForm(BaseModel):
    """A picture as the new item."""

    model_config = ConfigDict(extra="forbid")

    image: Upload
    metadata: Annotated[Json[CheckedMetadata], WithJsonSchema({"type": "string", "description": "A JSON object"})] = (
        Field(default_factory=dict)
    )


class ItemAnswer(BaseModel):
    id: str
    code: str
    metadata: dict[str, Any]
    has_image: bool


class Label(BaseModel):
    label: str
    items: int


class Labels(BaseModel):
    labels: list[Label]
    complete: bool = Field(description="False until labels have been counted for the first time")


class Month(BaseModel):
    month: str = Field(description="As in `2023-06`: what `taken` begins with")
    items: int


class Camera(BaseModel):
    camera: str
    items: int


class PhotoPlace(BaseModel):
    """Taken within `km` of a point, as `near(latitude, longitude, km)` in a filter finds them."""

    latitude: float
    longitude: float
    km: float
    items: int


class Facets(BaseModel):
    months: list[Month]
    cameras: list[Camera]
    places: list[PhotoPlace]
    complete: bool = Field(description="False until photos have been counted for the first time")


class DuplicatePicture(BaseModel):
    id: str
    width: int | None
    height: int | None
    bytes: int | None = Field(description="Of the file")
    has_image: bool


class DuplicateGroup(BaseModel):
    items: list[DuplicatePicture] = Field(description="The one with the most pixels first")


class DuplicatesAnswer(BaseModel):
    groups: list[DuplicateGroup]
    all_groups: int = Field(description="The number of groups on all pages")
    all_items: int = Field(description="The number of pictures in them")
    complete: bool = Field(description="False until pictures have been compared for the first time")


class StatsAnswer(BaseModel):
    engine: str
    items: int
    bits: int
    bytes: int = Field(description="On disk, if the engine reports it; else 0")
    bytes_per_item: int = Field(description="Of a code")
    model: dict[str, Any]
    encoder: str
    key_required: bool
    writable: bool
    finds: list[str]
    version: str


class Health(BaseModel):
    status: str
    key_required: bool
