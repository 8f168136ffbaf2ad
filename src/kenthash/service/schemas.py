"""What requests hold and answers give, as OpenAPI tells it. Answers are written as plain JSON, without passing here."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kenthash.search.filters import MAX_LENGTH
from kenthash.search.index import MAX_ID
from kenthash.service.settings import MAX_OFFSET, MAX_PAGE, MAX_TEXT

Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S", description="What to look for, in words")]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, description="An item: what is like it is looked for")]
Value = str | int | float | bool | list[str] | None


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    k: int = Field(24, ge=1, le=MAX_PAGE, description="Hits of this page")
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="Hits of the pages before")
    radius: int | None = Field(None, ge=0, le=1024, description="Leave out what differs in more bits")
    filter: str | None = Field(
        None, max_length=MAX_LENGTH, description="On metadata: `labels has 'dog' and year >= 2020`"
    )
    find: Literal["pictures", "texts"] = Field("pictures", description="Whose codes are compared with the query's")


class Query(Options):
    """Exactly one of text and id."""

    text: Text | None = None
    id: Id | None = None

    @model_validator(mode="after")
    def _one(self) -> "Query":
        if (self.text is None) == (self.id is None):
            raise ValueError("give one of: text, id, or a picture as multipart/form-data")
        return self


class Hit(BaseModel):
    id: str
    distance: int = Field(description="Bits that differ")
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
    timing: Timing
    looked_at: int | None = Field(description="Codes that the engine compared with the query's, where it says")
    items: int
    bytes_per_item: int = Field(description="Of a code")


class NewItem(BaseModel):
    """Exactly one of code and text."""

    model_config = ConfigDict(extra="forbid")

    code: str | None = Field(None, pattern="^([0-9a-fA-F]{2})+$", max_length=256)
    text: Text | None = None
    metadata: dict[str, Value] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one(self) -> "NewItem":
        if (self.code is None) == (self.text is None):
            raise ValueError("give one of: code, text, or a picture as multipart/form-data")
        return self


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


class StatsAnswer(BaseModel):
    engine: str
    items: int
    bits: int
    bytes: int = Field(description="On disk, as far as the engine can say; else 0")
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


class ItemFields(BaseModel):
    """What a form may hold besides the picture."""

    model_config = ConfigDict(extra="forbid")

    metadata: str = "{}"
